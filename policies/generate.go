package policies

//go:generate go run ../internal/genfacts gate/facts/data.json
