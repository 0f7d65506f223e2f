# The same targets that .ci/run calls.
GO ?= go
STATICCHECK ?= $(GO) run honnef.co/go/tools/cmd/staticcheck@v0.8.2
FUZZTIME ?= 10s
BENCHTIME ?= 1s

.PHONY: all build test race lint exhaustive fuzz bench bench-serve bench-ledger bench-hook microbench generate

all: lint test

build:
	CGO_ENABLED=0 $(GO) build -o bin/ ./cmd/opa-gate ./cmd/opa-gate-hook

test:
	$(GO) test -timeout 30m ./...

# Faults in the policies against verify, and differences against brute force:
# many whole surveys, a quarter of an hour on two processors.
exhaustive:
	OPA_GATE_EXHAUSTIVE=1 $(GO) test -timeout 60m -v -run 'Faults|BruteForce|OfThePolicies|WatchWhole' ./analysis

race:
	$(GO) test -race -short -timeout 30m -v ./...

lint:
	@unformatted=$$(gofmt -l .); test -z "$$unformatted" || { echo "gofmt would change: $$unformatted"; exit 1; }
	$(GO) vet ./...
	$(STATICCHECK) ./...
	cd bench && $(GO) vet ./... && $(STATICCHECK) ./...

# Every fuzz target of the module, one after the other.
fuzz:
	@set -e; count=0; for pkg in $$(grep -rl --include='*_test.go' '^func Fuzz' . | xargs -n1 dirname | sort -u); do \
	  for target in $$(grep -hoE '^func Fuzz[A-Za-z0-9_]+' $$pkg/*_test.go | cut -c6-); do \
	    count=$$((count+1)); echo "fuzz $$pkg $$target"; $(GO) test $$pkg -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME); \
	  done; \
	done; echo "$$count fuzz targets"; test $$count -gt 0

# The gate beside stock OPA, cel-go and cedar-go, measured in one run.
bench:
	cd bench && $(GO) test ./... && $(GO) run .

# opa-gate serve beside stock OPA, over HTTP, measured in one run.
bench-serve:
	$(GO) run ./internal/servebench

# The ledger: a lookup among a million records, and the records a second on SQLite
# and on a PostgreSQL that it starts.
bench-ledger:
	$(GO) test -run '^$$' -bench . -benchmem ./ledger

# Hook calls as an agent makes them, from the start of the process to the answer.
bench-hook:
	$(GO) run ./internal/hookbench

# Go's own benchmarks of the parts.
microbench:
	$(GO) test -run '^$$' -bench . -benchmem -benchtime $(BENCHTIME) ./capability ./wire ./evaluator ./cmd/opa-gate ./agent ./agent/gateway

generate:
	$(GO) generate ./...
