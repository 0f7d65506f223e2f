package settings_test

import (
	"strings"
	"testing"

	"github.com/opa-gate/opa-gate/agent/hook/settings"
)

// What a person or another program has beside the hook may have any form: the hook is
// found and taken out all the same, and what is theirs stays.
func TestFindBesideOthers(t *testing.T) {
	for name, other := range map[string]string{
		"a timeout that is text":    `{"matcher":"Bash","hooks":[{"type":"command","command":"x","timeout":"10"}]}`,
		"a command that is none":    `{"hooks":[{"command":5},{"command":null},{"command":["opa-gate-hook"]}]}`,
		"a matcher that is a list":  `{"matcher":["Bash"],"hooks":[{"command":"x"}]}`,
		"hooks that are text":       `{"hooks":"opa-gate-hook"}`,
		"no groups":                 `null, 5, "opa-gate-hook", [], [{"command":"opa-gate-hook"}], {}`,
		"a name in another case":    `{"Hooks":[{"command":"opa-gate-hook"}]}, {"hooks":[{"Command":"opa-gate-hook"}]}`,
		"another command of ours":   `{"hooks":[{"type":"command","command":"opa-gate hook status || true"}]}`,
		"ours, as somebody's words": `{"hooks":[{"type":"prompt","prompt":"opa-gate-hook"}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			text := []byte(`{"hooks": {"PreToolUse": [` + other + `], "SessionStart": [` + other + `]}, "a": 1}`)
			if found, err := settings.Find(text); err != nil || len(found) > 0 {
				t.Fatalf("found before it was put in: %+v, %v", found, err)
			}
			after, put, err := settings.Install(text, events, hook)
			if err != nil {
				t.Fatal(err)
			}
			found, err := settings.Find(after)
			if err != nil || len(found) != len(events) {
				t.Errorf("%+v, %v", found, err)
			}
			if back, ok := settings.Undo(after, put); !ok || string(back) != string(text) {
				t.Errorf("undone: %s", back)
			}
			removed, err := settings.Remove(after)
			if err != nil || string(removed) != string(text) {
				t.Errorf("removed: %s, want %s (%v)", removed, text, err)
			}
		})
	}
}

// What a person made of the hook is told as it stands there.
func TestFindEdited(t *testing.T) {
	for entry, want := range map[string]settings.Found{
		`{"hooks":[{"command":"opa-gate-hook"}]}`:                                          {},
		`{"matcher":"Bash","hooks":[{"command":"opa-gate-hook","timeout":1.5}]}`:           {Matcher: "Bash", Timeout: 1.5},
		`{"matcher":5,"hooks":[{"command":"opa-gate-hook","timeout":"9"}]}`:                {Matcher: "5"},
		`{"matcher":null,"hooks":[{"command":"opa-gate-hook","onFailure":"block"}]}`:       {OnFailure: "block"},
		`{"hooks":[{"command":"x","timeout":"9"},{"command":"opa-gate-hook","other":[]}]}`: {},
	} {
		want.Event, want.Command = "Stop", "opa-gate-hook"
		found, err := settings.Find([]byte(`{"hooks":{"Stop":[` + entry + `]}}`))
		if err != nil || len(found) != 1 || found[0] != want {
			t.Errorf("%s: %+v, %v", entry, found, err)
		}
	}
	if _, err := settings.Find([]byte(strings.Repeat("[", 100))); err == nil {
		t.Error("found in what is no JSON")
	}
}
