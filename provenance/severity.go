package provenance

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
)

// A Severity is how bad a finding is. Values are ordered; the zero Severity
// means that the report does not say.
type Severity uint8

// The severities, lowest first.
const (
	NoSeverity Severity = iota
	Low
	Medium
	High
	Critical
)

var severityNames = [...]string{NoSeverity: "unknown", Low: "low", Medium: "medium", High: "high", Critical: "critical"}

// Severities lists the names of severities, lowest first.
func Severities() []string { return append([]string(nil), severityNames[Low:]...) }

// ParseSeverity returns the severity with that name, and whether there is one.
// NoSeverity has none that can be asked for.
func ParseSeverity(name string) (Severity, bool) {
	for i, n := range severityNames[Low:] {
		if n == name {
			return Low + Severity(i), true
		}
	}
	return NoSeverity, false
}

// String returns the name of s, or Severity(N) if s is not valid.
func (s Severity) String() string {
	if int(s) < len(severityNames) {
		return severityNames[s]
	}
	return "Severity(" + strconv.Itoa(int(s)) + ")"
}

// levelSeverity is the lowest severity that a level of SARIF stands for: error
// is the level of high and of critical findings.
func levelSeverity(level string) (Severity, error) {
	switch level {
	case "error":
		return High, nil
	case "warning":
		return Medium, nil
	case "note":
		return Low, nil
	case "", "none":
		return NoSeverity, nil
	}
	return NoSeverity, fmt.Errorf("level: expected error, warning, note or none, got %q", cut(level))
}

// severity is what GitHub makes of the property security-severity, a number
// from 0 to 10 in a string; NoSeverity where there is none.
func (p properties) severity() (Severity, error) {
	if len(p.SecuritySeverity) == 0 || p.SecuritySeverity.Kind() == 'n' {
		return NoSeverity, nil
	}
	text := string(p.SecuritySeverity)
	if p.SecuritySeverity.Kind() == '"' {
		if err := json.Unmarshal(p.SecuritySeverity, &text); err != nil {
			return NoSeverity, err
		}
	}
	score, err := strconv.ParseFloat(text, 64)
	switch {
	case err != nil || math.IsNaN(score) || score < 0 || score > 10:
		return NoSeverity, fmt.Errorf("security-severity: expected a number from 0 to 10, got %s", cut(text))
	case score >= 9:
		return Critical, nil
	case score >= 7:
		return High, nil
	case score >= 4:
		return Medium, nil
	}
	return Low, nil
}

// severity is how bad the run says a finding is; NoSeverity where that cannot
// be told, or where it is open whether there is something to be found.
func (r *run) severity(f *result) Severity {
	if f.Kind == "open" || f.Kind == "review" {
		return NoSeverity
	}
	score, _ := f.Properties.severity() // check has seen to errors
	level := f.Level
	for _, rule := range r.rulesOf(f) {
		s, _ := rule.Properties.severity()
		score = max(score, s)
		if f.Level == "" {
			level = worse(level, rule.DefaultConfiguration.Level)
		}
	}
	if f.Level == "" && r.overrides() { // the level is somewhere that is not read here
		return NoSeverity
	}
	if level == "" {
		level = "warning" // SARIF's default
	}
	floor, _ := levelSeverity(level)
	if score == NoSeverity && floor == High {
		return Critical // no level says that it is not
	}
	return max(score, floor)
}

// worse returns the level that stands for more; "" stands for the least.
func worse(a, b string) string {
	x, _ := levelSeverity(a)
	y, _ := levelSeverity(b)
	if a == "" || y > x {
		return b
	}
	return a
}

// overrides tells whether the run was made with levels other than its rules'.
func (r *run) overrides() bool {
	for _, i := range r.Invocations {
		if len(i.RuleConfigurationOverrides) > 0 {
			return true
		}
	}
	return false
}

// rulesOf returns the rules that a finding may be of: the one that it points
// at, or else all with its id.
func (r *run) rulesOf(f *result) []*rule {
	components := append([]component{r.Tool.Driver}, r.Tool.Extensions...)
	id, index, of := f.RuleID, f.RuleIndex, 0
	if ref := f.Rule; ref != nil {
		if ref.ID != "" {
			id = ref.ID
		}
		if ref.Index != nil {
			index = ref.Index
		}
		if c := ref.ToolComponent; c != nil {
			if of = -1; c.Index != nil { // of -1: which one is not said by number
				of = *c.Index + 1
			}
		}
	}
	if index != nil && of >= 0 && of < len(components) && *index >= 0 && *index < len(components[of].Rules) {
		return []*rule{&components[of].Rules[*index]}
	}
	var found []*rule
	for _, c := range components {
		for i := range c.Rules {
			// The id of a result can be that of its rule with parts behind it.
			if c.Rules[i].ID != "" && (id == c.Rules[i].ID || strings.HasPrefix(id, c.Rules[i].ID+"/")) {
				found = append(found, &c.Rules[i])
			}
		}
	}
	return found
}
