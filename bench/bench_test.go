package main

import (
	"bytes"
	"context"
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/opa-gate/opa-gate/capability"
)

// Every row answers as native does: the two quick ones on the whole domain,
// the others on the cells that a run looks at.
func TestRowsAgreeWithNative(t *testing.T) {
	docs, err := measuredDocuments()
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range rows() {
		t.Run(row.name, func(t *testing.T) {
			d, err := row.open(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			step := spreadStep
			if row.name == celName || row.name == cedarName {
				step = 1
			}
			count, err := verify(t.Context(), d, docs, step)
			if err != nil {
				t.Fatal(err)
			}
			if want := len(docs) + (domainSize+step-1)/step; count != want {
				t.Errorf("%d documents were looked at, want %d", count, want)
			}
		})
	}
}

// The cells of the spread have every value of every coordinate, and no two of
// them are the same document.
func TestSpread(t *testing.T) {
	seen := map[string]bool{}
	kinds := map[capability.Kind]int{}
	profiles := map[capability.Profile]bool{}
	bases := map[capability.Set]bool{}
	for i := 0; i < domainSize; i += spreadStep {
		doc, err := cell(i)
		if err != nil {
			t.Fatal(err)
		}
		seen[string(doc.text)] = true
		kinds[doc.call.Decide("").Kind]++
		profiles[doc.call.Profile] = true
		bases[doc.call.Grant.Base] = true
	}
	if want := (domainSize + spreadStep - 1) / spreadStep; len(seen) != want {
		t.Errorf("%d different documents, want %d", len(seen), want)
	}
	if len(profiles) != 9*8 || len(bases) != 32 || len(kinds) != 5 {
		t.Errorf("%d profiles, %d bases, kinds %v", len(profiles), len(bases), kinds)
	}
}

// liar answers allow, whatever it is asked.
type liar struct{}

func (liar) bind(context.Context, *document) (*bound, error) {
	return &bound{
		run:    func() error { return nil },
		answer: func() (*answer, error) { return &answer{kind: capability.Allow}, nil },
	}, nil
}

func TestVerifyNoticesADifference(t *testing.T) {
	docs, err := measuredDocuments()
	if err != nil {
		t.Fatal(err)
	}
	if count, err := verify(t.Context(), liar{}, docs, spreadStep); err == nil || count != 1 {
		t.Errorf("error %v after %d documents, want one at the second, which escalates", err, count)
	}
	want := docs[1].call.Decide("")
	text, err := want.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	none := capability.Set(0)
	for name, a := range map[string]*answer{
		"kind":     {kind: capability.Deny},
		"missing":  {kind: want.Kind, missing: &none},
		"document": {kind: want.Kind, document: bytes.Replace(text, []byte("web_fetch"), []byte("web_search"), 1)},
	} {
		if a.check(&want) == nil {
			t.Errorf("another %s passes", name)
		}
	}
	if err := (&answer{kind: want.Kind, missing: &want.Missing, document: text}).check(&want); err != nil {
		t.Error(err)
	}
}

// A run of two quick rows, as short as it gets, in both formats.
func TestReport(t *testing.T) {
	s := settings{run: regexp.MustCompile("^(" + nativeName + "|" + celName + ")$"), perItem: 10 * time.Millisecond, step: 1000}
	r, differ, err := s.measure(t.Context())
	if err != nil || differ {
		t.Fatal(err, differ)
	}
	if len(r.Sections) != len(measured) || len(r.Sections[0].Rows) != 2 || len(r.Others) != 0 {
		t.Fatalf("%+v", r)
	}
	for _, row := range r.Sections[0].Rows {
		if row.Nanoseconds <= 0 || row.ToNative <= 0 || row.ToWarm != 0 {
			t.Errorf("%+v", row)
		}
	}
	var markdown, text bytes.Buffer
	if err := r.writeMarkdown(&markdown); err != nil {
		t.Fatal(err)
	}
	width := 0
	for line := range strings.Lines(strings.SplitAfter(markdown.String(), "\n\n")[0]) {
		if line = strings.TrimRight(line, "\n"); line != "" {
			if n := len([]rune(line)); width != 0 && n != width {
				t.Errorf("the table is not aligned:\n%s", markdown.String())
				break
			} else {
				width = n
			}
		}
	}
	if err := r.writeJSON(&text); err != nil {
		t.Fatal(err)
	}
	var back report
	if err := json.Unmarshal(text.Bytes(), &back); err != nil || len(back.Sections) != len(r.Sections) {
		t.Errorf("error %v, %d sections", err, len(back.Sections))
	}
}

func TestNumber(t *testing.T) {
	for f, want := range map[float64]string{
		0: "0", 1: "1", 3: "3", 0.000237: "0.00024", 0.07: "0.070", 0.254: "0.25", 4.567: "4.57",
		47.12: "47.1", 104: "104", 999.6: "1,000", 1436: "1,440", 328111: "328,000", 1234567: "1,230,000",
	} {
		if got := number(f); got != want {
			t.Errorf("number(%v) = %q, want %q", f, got, want)
		}
	}
}
