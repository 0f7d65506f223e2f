package provenance

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/opa-gate/opa-gate/internal/plain"
)

// Bounds of a scanner's report.
const (
	MaxReport      = 32 << 20 // bytes
	maxReportDepth = 64       // arrays and objects within each other
	maxRuns        = 1000     // runs of scanners
	maxRuleID      = 1024     // bytes of a rule's id
)

// ErrReport is wrapped by the errors of [ReadReport]: what is wrong with a
// report. A report with an error says nothing about any skill.
var ErrReport = errors.New("the report cannot be used")

// A Report is what a scanner found, in SARIF 2.1.0.
type Report struct {
	runs []run
}

// The parts of SARIF that matter here. Members of no interest are passed over,
// but for those that could hold findings somewhere else.
type sarifLog struct {
	Version                  string           `json:"version"`
	Runs                     []run            `json:"runs"`
	InlineExternalProperties []jsontext.Value `json:"inlineExternalProperties"`
}

type run struct {
	Tool struct {
		Driver     component   `json:"driver"`
		Extensions []component `json:"extensions"`
	} `json:"tool"`
	Invocations []struct {
		ExecutionSuccessful        *bool            `json:"executionSuccessful"`
		RuleConfigurationOverrides []jsontext.Value `json:"ruleConfigurationOverrides"`
	} `json:"invocations"`
	Results            *[]result                   `json:"results"` // nil: the scanner did not come to look
	Artifacts          []artifact                  `json:"artifacts"`
	OriginalURIBaseIDs map[string]artifactLocation `json:"originalUriBaseIds"`
	ExternalFiles      jsontext.Value              `json:"externalPropertyFileReferences"`

	// Made by index.
	components []component // the driver, and then the extensions
	grades     map[string]grade
}

type component struct {
	Name  string `json:"name"`
	Rules []rule `json:"rules"`
}

type rule struct {
	ID                   string `json:"id"`
	DefaultConfiguration struct {
		Level string `json:"level"`
	} `json:"defaultConfiguration"`
	Properties properties `json:"properties"`
}

// properties has the one property whose meaning GitHub's code scanning gives.
type properties struct {
	SecuritySeverity jsontext.Value `json:"security-severity"`
}

type result struct {
	RuleID        string         `json:"ruleId"`
	RuleIndex     *int           `json:"ruleIndex"`
	Rule          *ruleReference `json:"rule"`
	Kind          string         `json:"kind"`
	Level         string         `json:"level"`
	BaselineState string         `json:"baselineState"`
	Locations     []location     `json:"locations"`
	Suppressions  []suppression  `json:"suppressions"`
	Properties    properties     `json:"properties"`
}

type ruleReference struct {
	ID            string `json:"id"`
	Index         *int   `json:"index"`
	ToolComponent *struct {
		Name  string `json:"name"`
		Index *int   `json:"index"`
	} `json:"toolComponent"`
}

type location struct {
	PhysicalLocation struct {
		ArtifactLocation artifactLocation `json:"artifactLocation"`
	} `json:"physicalLocation"`
}

type artifactLocation struct {
	URI       string `json:"uri"`
	URIBaseID string `json:"uriBaseId"`
	Index     *int   `json:"index"`
}

type artifact struct {
	Location    artifactLocation  `json:"location"`
	ParentIndex *int              `json:"parentIndex"` // the artifact that this one is packed in
	Hashes      map[string]string `json:"hashes"`
}

type suppression struct {
	Kind   string `json:"kind"`
	Status string `json:"status"`
}

// ReadReport reads a report in SARIF 2.1.0 of at most [MaxReport] bytes. Its
// errors wrap ErrReport, but for those of in.
func ReadReport(in io.Reader) (*Report, error) {
	text, err := io.ReadAll(io.LimitReader(in, MaxReport+1))
	if err != nil {
		return nil, err
	}
	if len(text) > MaxReport {
		return nil, fmt.Errorf("%w: it has more than %d MiB", ErrReport, MaxReport>>20)
	}
	text = bytes.TrimPrefix(text, []byte("\ufeff")) // as tools on Windows write it
	if err := shallow(text); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrReport, err)
	}
	var log sarifLog
	if err := json.Unmarshal(text, &log); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrReport, plain.JSON(err))
	}
	switch {
	case log.Version != "2.1.0":
		return nil, fmt.Errorf("%w: expected SARIF with the version \"2.1.0\", got %q", ErrReport, cut(log.Version))
	case len(log.Runs) == 0:
		return nil, fmt.Errorf("%w: it has no runs", ErrReport)
	case len(log.Runs) > maxRuns:
		return nil, fmt.Errorf("%w: it has more than %d runs", ErrReport, maxRuns)
	case len(log.InlineExternalProperties) > 0:
		return nil, fmt.Errorf("%w: it has inlineExternalProperties; have the scanner write everything into its run", ErrReport)
	}
	for i := range log.Runs {
		if err := log.Runs[i].check(); err != nil {
			return nil, fmt.Errorf("%w: runs[%d]: %w", ErrReport, i, err)
		}
		log.Runs[i].index()
	}
	return &Report{runs: log.Runs}, nil
}

// shallow goes through the tokens of a text: one JSON value, not nested too
// deeply, no member given twice.
func shallow(text []byte) error {
	dec := jsontext.NewDecoder(bytes.NewReader(text))
	for {
		if _, err := dec.ReadToken(); err != nil {
			if errors.Is(err, io.EOF) && dec.InputOffset() > 0 {
				return nil
			}
			if errors.Is(err, io.EOF) {
				return errors.New("it is empty")
			}
			return err
		}
		if dec.StackDepth() > maxReportDepth {
			return fmt.Errorf("it is nested more than %d deep", maxReportDepth)
		}
	}
}

// check holds a run against what its findings are counted by.
func (r *run) check() error {
	if r.Tool.Driver.Name == "" {
		return errors.New("expected the scanner's name in tool.driver.name")
	}
	if ext := r.ExternalFiles; len(ext) > 0 && ext.Kind() != 'n' {
		return errors.New("a part of it is in other files (externalPropertyFileReferences); have the scanner write one file")
	}
	for i, inv := range r.Invocations {
		if inv.ExecutionSuccessful == nil {
			return fmt.Errorf("invocations[%d]: expected executionSuccessful, true or false", i)
		}
	}
	for _, c := range append([]component{r.Tool.Driver}, r.Tool.Extensions...) {
		for i := range c.Rules {
			if err := c.Rules[i].check(); err != nil {
				return fmt.Errorf("rules[%d] of %s: %w", i, cut(c.Name), err)
			}
		}
	}
	for i, a := range r.Artifacts {
		if h, ok := a.Hashes["sha-256"]; ok {
			if b, err := hex.DecodeString(h); err != nil || len(b) != len(Digest{}) {
				return fmt.Errorf("artifacts[%d]: expected 64 hexadecimal digits as the hash sha-256, got %q", i, cut(h))
			}
		}
	}
	if r.Results == nil {
		return nil
	}
	for i := range *r.Results {
		if err := (*r.Results)[i].check(); err != nil {
			return fmt.Errorf("results[%d]: %w", i, err)
		}
	}
	return nil
}

func (r *rule) check() error {
	if _, err := levelSeverity(r.DefaultConfiguration.Level); err != nil {
		return err
	}
	_, err := r.Properties.severity()
	return err
}

// The values that SARIF gives to members of results. "" is a member that is
// left out.
var (
	kinds    = []string{"", "fail", "open", "review", "pass", "notApplicable", "informational"}
	states   = []string{"", "new", "unchanged", "updated", "absent"}
	accepted = []string{"", "accepted", "underReview", "rejected"}
)

func (r *result) check() error {
	if len(r.RuleID) > maxRuleID || r.Rule != nil && len(r.Rule.ID) > maxRuleID {
		return fmt.Errorf("the id of its rule has more than %d bytes", maxRuleID)
	}
	if err := oneOf("kind", r.Kind, kinds); err != nil {
		return err
	}
	if err := oneOf("baselineState", r.BaselineState, states); err != nil {
		return err
	}
	if _, err := levelSeverity(r.Level); err != nil {
		return err
	}
	if _, err := r.Properties.severity(); err != nil {
		return err
	}
	for i, s := range r.Suppressions {
		err := oneOf("kind", s.Kind, []string{"inSource", "external"})
		if err == nil {
			err = oneOf("status", s.Status, accepted)
		}
		if err != nil {
			return fmt.Errorf("suppressions[%d]: %w", i, err)
		}
	}
	return nil
}

func oneOf(member, got string, names []string) error {
	for _, n := range names {
		if n == got {
			return nil
		}
	}
	return fmt.Errorf("%s: expected %s, got %q", member, strings.TrimPrefix(strings.Join(names, ", "), ", "), cut(got))
}
