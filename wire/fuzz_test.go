package wire_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/opa-gate/opa-gate/wire"
)

func refused(t *testing.T, err error) {
	t.Helper()
	var e *wire.Error
	if !errors.As(err, &e) {
		t.Fatalf("an error of another type: %v", err)
	}
	if e.Message() == "" || e.Line < 1 || e.Expected == "" {
		t.Errorf("an error that says too little: %+v", e)
	}
}

func answered(t *testing.T, answer any) {
	t.Helper()
	text, err := json.Marshal(answer)
	if err != nil {
		t.Fatal(err)
	}
	var doc map[string]json.RawMessage
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	if len(doc["outcome"]) == 0 {
		t.Errorf("no outcome: %s", text)
	}
}

func FuzzParseCall(f *testing.F) {
	for _, seed := range []string{
		minimal, "", "{", "null", minimal + "x",
		with(`"policy":{"veto":null}`),
		with(`"grant":{"base":["local-read","x"]}`),
		transform(`{"kind":"rewrite","arguments":{"n":9007199254740993}}`),
		transform(`{"arguments":{"a":[{}]},"kind":"rewrite"}`),
		transform(`{"kind":"inject_context","note":"n"}`),
		transform(`{"kind":"none"}`),
		`{"tool":{"name":"t","origin":"fetcher","read_only":true,"destructive":null},"taint":"tainted"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := wire.ParseCall(data)
		if err != nil {
			refused(t, err)
			return
		}
		if err := c.Validate(); err != nil {
			t.Fatal(err)
		}
		o := c.Decide("")
		answered(t, o)
	})
}

func FuzzParseSkill(f *testing.F) {
	for _, seed := range []string{
		`{"skill":"s","requested":"read_only"}`, "", "[", "null",
		`{"skill":"a:b","requested":"full_access","approval":"approved","provenance":{"signed":true,"fail_count":1e3}}`,
		`{"skill":"s","requested":"sandbox_edit","provenance":{"success_count":18446744073709551615,"source":"official"}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := wire.ParseSkill(data)
		if err != nil {
			refused(t, err)
			return
		}
		if err := r.Validate(); err != nil {
			t.Fatal(err)
		}
		answered(t, r.Decide())
	})
}
