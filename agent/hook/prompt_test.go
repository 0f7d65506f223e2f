package hook_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/opa-gate/opa-gate/agent"
	"github.com/opa-gate/opa-gate/agent/hook"
)

// Only what a person typed is kept as typed, and only if the policies read it.
func TestPromptsTyped(t *testing.T) {
	for name, tt := range map[string]struct {
		steers bool
		more   map[string]any
		want   int
	}{
		"typed":                       {true, map[string]any{"prompt": "hello"}, 1},
		"typed, and it says so":       {true, map[string]any{"prompt": "hello", "source": "user"}, 1},
		"by a program":                {true, map[string]any{"prompt": "hello", "source": "sdk"}, 0},
		"by nobody":                   {true, map[string]any{"prompt": "hello", "source": "task"}, 0},
		"in a sub-agent":              {true, map[string]any{"prompt": "hello", "agent_id": "a1"}, 0},
		"not a text":                  {true, map[string]any{"prompt": []string{"hello"}}, 0},
		"none":                        {true, nil, 0},
		"to policies that do not ask": {false, map[string]any{"prompt": "hello"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			h, _ := newHandler(t)
			h.Gate.Steers = tt.steers
			start(t, h)
			event := map[string]any{"hook_event_name": "UserPromptSubmit"}
			for k, v := range tt.more {
				event[k] = v
			}
			if r := handle(t, h, event); r.Exit != 0 || string(r.Stdout) != "{}\n" {
				t.Errorf("%+v", r)
			}
			kept, err := h.Gate.Sessions.Log.Subject(t.Context(), "typed:s")
			if err != nil || len(kept) != tt.want {
				t.Errorf("%d kept, %v, want %d", len(kept), err, tt.want)
			}
		})
	}
}

// A prompt that cannot be kept blocks: what comes after it would be decided on less
// than the person typed.
func TestPromptThatCannotBeKept(t *testing.T) {
	h, _ := newHandler(t)
	h.Gate.Steers = true
	start(t, h)
	h.Gate.Sessions.Log = fullLog{h.Gate.Sessions.Log}
	if r := handle(t, h, map[string]any{"hook_event_name": "UserPromptSubmit", "prompt": "hello"}); r.Exit != hook.ExitBlock {
		t.Errorf("%+v", r)
	}
	if err := h.Gate.Typed(t.Context(), "", "hello"); !errors.Is(err, agent.ErrSession) {
		t.Error(err)
	}
}

// A fullLog takes no prompts.
type fullLog struct{ agent.Log }

func (l fullLog) Update(ctx context.Context, subject string, f func([]agent.Entry, time.Time) ([]agent.Draft, error)) ([]agent.Entry, error) {
	if subject == "typed:s" {
		return nil, errors.New("the disk is full")
	}
	return l.Log.Update(ctx, subject, f)
}
