package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/opa-gate/opa-gate/capability"
)

// What is no escalation comes back as it is; a store that is nil shows that it is
// not touched.
func TestAdmitTouchesNothing(t *testing.T) {
	l := newLedger(nil, nil)
	for kind := range 256 {
		if capability.Kind(kind) == capability.Escalate {
			continue
		}
		e := escalation("t", `{}`, egress)
		e.Outcome.Kind, e.Token = capability.Kind(kind), "x.y.z"
		a, err := l.Admit(context.Background(), e)
		if err != nil || !a.Outcome.Equal(e.Outcome) || a.Pending != nil || a.Approval != nil || a.Refused != nil {
			t.Errorf("%v: %+v, %v", e.Outcome.Kind, a, err)
		}
	}
}

// A world is a ledger with a clock, for scenes.
type world struct {
	*testing.T
	l *Ledger
	c *clock
}

// admit puts a call to the ledger.
func (w *world) admit(e *Escalation) Admission {
	w.Helper()
	a, err := w.l.Admit(context.Background(), e)
	if err != nil {
		w.Fatal(err)
	}
	return a
}

// waits expects that a call waits, and returns its id. Refused is what the
// approval there was must be refused for.
func (w *world) waits(e *Escalation, refused error) string {
	w.Helper()
	a := w.admit(e)
	if !a.Outcome.Equal(e.Outcome) || a.Pending == nil || a.Approval != nil {
		w.Fatalf("expected that it waits, got %+v", a)
	}
	if !errors.Is(a.Refused, refused) {
		w.Fatalf("expected that the approval is refused by %v, got %v", refused, a.Refused)
	}
	if p := a.Pending; p.State != Waiting || p.Tool != e.Call.Tool || p.Session != e.Call.Session || p.Revision != e.Call.Revision ||
		p.MissingMask != e.Outcome.Missing.Mask() || !slices.Equal(p.Missing, e.Outcome.Missing.DisplayNames()) || p.Reason != e.Outcome.Reason {
		w.Fatalf("something else waits: %+v", p)
	}
	return a.Pending.ID
}

func (w *world) passes(e *Escalation, kind capability.Kind) Admission {
	w.Helper()
	a := w.admit(e)
	if a.Outcome.Kind != kind || a.Approval == nil || a.Pending != nil || !a.Outcome.Missing.Empty() || a.Outcome.Granted != e.Outcome.Granted {
		w.Fatalf("expected %v by an approval, got %+v", kind, a)
	}
	return a
}

func (w *world) denied(e *Escalation, comment string) {
	w.Helper()
	a := w.admit(e)
	if a.Outcome.Kind != capability.Deny || a.Pending != nil || a.Approval != nil || !strings.Contains(a.Outcome.Reason, comment) || !a.Outcome.Missing.Empty() {
		w.Fatalf("expected a denial, got %+v", a)
	}
}

func (w *world) decide(id string, d Decision) *Pending {
	w.Helper()
	p, err := w.l.Decide(context.Background(), "ann", id, d)
	if err != nil {
		w.Fatal(err)
	}
	return p
}

var (
	once    = Decision{Approve: true}
	session = Decision{Approve: true, Scope: ForSession}
	reject  = Decision{Comment: "not today"}
)

// scenes are what the ledger promises, one life of an escalation each.
var scenes = map[string]func(w *world){
	"the same call twice is one escalation": func(w *world) {
		id := w.waits(escalation("t", `{"a":1,"b":[2]}`, egress), nil)
		if again := w.waits(escalation("t", ` { "b":[2], "a":1 } `, egress), nil); again != id {
			w.Errorf("filed as %s and %s", id, again)
		}
		if n := sound(w, w.l); n != 1 {
			w.Errorf("%d entries", n)
		}
	},
	"approved once": func(w *world) {
		e := escalation("t", `{"a":1}`, egress)
		id := w.waits(e, nil)
		if p := w.decide(id, once); p.State != Approved || p.Decision.Reviewer != "ann" || p.Decision.Scope != Once {
			w.Errorf("decided as %+v", p)
		}
		a := w.passes(e, capability.Allow)
		if a.Approval.ID != id || a.Approval.Reviewer != "ann" || !slices.Equal(a.Outcome.Warnings, e.Outcome.Warnings) {
			w.Errorf("passed by %+v", a)
		}
		if p, err := w.l.Pending(context.Background(), id); err != nil || p.State != Used || p.Uses != 1 {
			w.Errorf("then %+v, %v", p, err)
		}
		w.waits(e, ErrUsed)
	},
	"approved for the session": func(w *world) {
		e := escalation("t", `{"a":1}`, egress)
		w.decide(w.waits(e, nil), session)
		for _, arguments := range []string{`{"a":1}`, `{"a":2}`, `{"a":1}`} {
			w.passes(escalation("t", arguments, egress), capability.Allow)
		}
		w.passes(escalation("t", `{}`, 0), capability.Allow) // a person is required, nothing is missing
		w.waits(escalation("u", `{"a":1}`, egress), nil)
		other := escalation("t", `{"a":1}`, egress)
		other.Call.Session = "s2"
		w.waits(other, nil)
		other.Call.Session, other.Call.Revision = "s1", "r2"
		w.waits(other, nil)
		w.waits(escalation("t", `{"a":1}`, egress|capability.Set(capability.MutateExternal)), ErrCoverage)
		w.waits(escalation("t", `{"a":1}`, capability.Set(capability.GrantAccess)), ErrCoverage)
		w.c.add(time.Hour)
		w.waits(e, ErrExpired)
	},
	"a use needs no person": func(w *world) {
		e := escalation("t", `{"a":1}`, 0)
		w.decide(w.waits(e, nil), once)
		w.passes(e, capability.Allow)
	},
	"changed arguments, tool, session and revision ask again": func(w *world) {
		e := escalation("t", `{"a":1}`, egress)
		w.decide(w.waits(e, nil), once)
		for _, change := range []func(*Call){
			func(c *Call) { c.Tool = "u" }, func(c *Call) { c.Arguments = json.RawMessage(`{"a":1.0}`) },
			func(c *Call) { c.Arguments = nil }, func(c *Call) { c.Session = "s2" }, func(c *Call) { c.Session = "" },
			func(c *Call) { c.Revision = "r2" }, func(c *Call) { c.Transform = capability.Transform{Kind: capability.InjectContext} },
		} {
			other := escalation("t", `{"a":1}`, egress)
			change(&other.Call)
			w.waits(other, nil)
		}
		w.passes(e, capability.Allow)
	},
	"a wider missing set asks again, a narrower one does not": func(w *world) {
		e := escalation("t", `{}`, egress)
		wide := escalation("t", `{}`, egress|capability.Set(capability.MutateExternal))
		w.decide(w.waits(e, nil), once)
		second := w.waits(wide, ErrCoverage)
		w.passes(e, capability.Allow) // what was approved stays approved
		w.decide(second, once)
		w.passes(e, capability.Allow)
	},
	"what is missing changes while it waits": func(w *world) {
		first := w.waits(escalation("t", `{}`, egress), nil)
		second := w.waits(escalation("t", `{}`, capability.Set(capability.MutateExternal)), nil)
		if first == second {
			w.Error("it still waits with the old set")
		}
		if p, err := w.l.Pending(context.Background(), first); err != nil || p.State != Withdrawn {
			w.Errorf("the old one: %+v, %v", p, err)
		}
		if ps, n, err := w.l.Waiting(context.Background(), 9); err != nil || n != 1 || ps[0].ID != second {
			w.Errorf("%d wait, %v", n, err)
		}
	},
	"rejected": func(w *world) {
		e := escalation("t", `{"a":1}`, egress|capability.Set(capability.MutateExternal))
		if p := w.decide(w.waits(e, nil), reject); p.State != Rejected || p.Decision.Token != "" {
			w.Errorf("decided as %+v", p)
		}
		w.denied(e, "not today")
		w.denied(escalation("t", `{"a":1}`, egress), "not today") // narrower
		w.waits(escalation("t", `{"a":2}`, egress), nil)
		w.c.add(time.Hour)
		w.waits(e, nil)
	},
	"rejected, and then more is missing": func(w *world) {
		w.decide(w.waits(escalation("t", `{}`, egress), nil), reject)
		w.waits(escalation("t", `{}`, capability.All), nil)
	},
	"the last word counts": func(w *world) {
		narrow, wide := escalation("t", `{}`, egress), escalation("t", `{}`, egress|capability.Set(capability.MutateExternal))
		w.decide(w.waits(narrow, nil), session)
		w.passes(narrow, capability.Allow)
		w.decide(w.waits(wide, ErrCoverage), reject)
		w.denied(narrow, "not today")
		w.passes(escalation("t", `{"other":1}`, egress), capability.Allow)
		w.decide(w.waits(escalation("t", `{"third":1}`, capability.All), ErrCoverage), session)
		w.passes(wide, capability.Allow)
	},
	"a token from before a rejection": func(w *world) {
		e := escalation("t", `{}`, egress)
		token := w.decide(w.waits(e, nil), once).Decision.Token
		w.c.add(time.Second)
		w.decide(w.waits(escalation("t", `{}`, capability.All), ErrCoverage), reject)
		e.Token = token
		a := w.admit(e)
		if a.Outcome.Kind != capability.Deny || !errors.Is(a.Refused, ErrWithdrawn) {
			w.Errorf("got %+v", a)
		}
	},
	"expired before it was decided": func(w *world) {
		e := escalation("t", `{}`, egress)
		e.Lifetime = time.Minute
		first := w.waits(e, nil)
		w.c.add(time.Minute)
		var late *DecidedError
		if _, err := w.l.Decide(context.Background(), "ann", first, once); !errors.As(err, &late) || late.State != Expired || !errors.Is(err, ErrDecided) {
			w.Errorf("got %v", err)
		}
		if second := w.waits(e, nil); second == first {
			w.Error("it waits on")
		}
	},
	"expired before it was used": func(w *world) {
		e := escalation("t", `{}`, egress)
		w.decide(w.waits(e, nil), Decision{Approve: true, Lifetime: time.Second})
		w.c.add(time.Second)
		w.waits(e, ErrExpired)
	},
	"withdrawn while it waits": func(w *world) {
		e := escalation("t", `{}`, egress)
		id := w.waits(e, nil)
		if p, err := w.l.Withdraw(context.Background(), "bob", id, "no need"); err != nil || p.State != Withdrawn {
			w.Errorf("got %+v, %v", p, err)
		}
		var late *DecidedError
		if _, err := w.l.Decide(context.Background(), "ann", id, once); !errors.As(err, &late) || late.State != Withdrawn {
			w.Errorf("got %v", err)
		}
		w.waits(e, nil)
	},
	"an approval withdrawn": func(w *world) {
		for i, d := range []Decision{once, session} {
			e := escalation("t", fmt.Sprintf(`{"a":%d}`, i), egress)
			id := w.waits(e, nil)
			w.decide(id, d)
			if p, err := w.l.Withdraw(context.Background(), "bob", id, "after all"); err != nil || p.State != Withdrawn {
				w.Errorf("got %+v, %v", p, err)
			}
			next := w.waits(e, ErrWithdrawn)
			w.decide(next, reject)
			if _, err := w.l.Withdraw(context.Background(), "bob", next, ""); !errors.Is(err, ErrDecided) {
				w.Errorf("a rejection is withdrawn: %v", err)
			}
		}
	},
	"never-granted acts are not approved for a session": func(w *world) {
		for mask := range capability.Set(512) {
			if mask&^(capability.All|capability.Markers) != 0 || mask.SubsetOf(capability.All) || mask.Len() > 2 {
				continue
			}
			e := escalation("t", `{"mask":`+mask.String()+`}`, mask)
			e.Call.Arguments, _ = json.Marshal(map[string]uint16{"mask": mask.Mask()})
			id := w.waits(e, nil)
			if _, err := w.l.Decide(context.Background(), "ann", id, session); !errors.Is(err, ErrScope) {
				w.Errorf("%v: got %v", mask, err)
			}
			w.decide(id, once)
			w.passes(e, capability.Allow)
			w.waits(e, ErrUsed)
		}
	},
	"without a session nothing is approved for one": func(w *world) {
		e := escalation("t", `{}`, egress)
		e.Call.Session = ""
		id := w.waits(e, nil)
		if _, err := w.l.Decide(context.Background(), "ann", id, session); !errors.Is(err, ErrScope) {
			w.Errorf("got %v", err)
		}
		w.decide(id, once)
		w.passes(e, capability.Allow)
	},
	"transforms": func(w *world) {
		rewrite := escalation("t", `{"a":1}`, egress)
		rewrite.Call.Transform = capability.Transform{Kind: capability.Rewrite, Arguments: json.RawMessage(`{"n":9007199254740993}`)}
		inject := escalation("t", `{"a":1}`, egress)
		inject.Call.Transform = capability.Transform{Kind: capability.InjectContext, Note: "careful"}
		id := w.waits(rewrite, nil)
		if p, err := w.l.Pending(context.Background(), id); err != nil || p.Transform == nil || p.Transform.Kind != "rewrite" || string(p.Transform.Arguments) != `{"n":9007199254740993}` {
			w.Errorf("a person reads %+v, %v", p, err)
		}
		w.decide(id, once)
		w.decide(w.waits(inject, nil), once)
		if a := w.passes(rewrite, capability.Modify); string(a.Outcome.Arguments) != `{"n":9007199254740993}` {
			w.Errorf("arguments become %s", a.Outcome.Arguments)
		}
		if a := w.passes(inject, capability.Inject); a.Outcome.Note != "careful" {
			w.Errorf("the note becomes %q", a.Outcome.Note)
		}
	},
	"a handed token": func(w *world) {
		e := escalation("t", `{}`, egress)
		p := w.decide(w.waits(e, nil), once)
		elsewhere := open(w, "memory:", &Options{Keys: ring(1), Now: w.c.now})
		e.Token = p.Decision.Token
		if a, err := elsewhere.Admit(context.Background(), e); err != nil || a.Outcome.Kind != capability.Allow {
			w.Fatalf("elsewhere: %+v, %v", a, err)
		}
		if a, err := elsewhere.Admit(context.Background(), e); err != nil || a.Pending == nil || !errors.Is(a.Refused, ErrUsed) {
			w.Fatalf("elsewhere, again: %+v, %v", a, err)
		}
		stranger := open(w, "memory:", &Options{Keys: ring(2), Now: w.c.now})
		if a, err := stranger.Admit(context.Background(), e); err != nil || a.Pending == nil || !errors.Is(a.Refused, ErrUnknownKey) {
			w.Fatalf("a stranger: %+v, %v", a, err)
		}
		w.passes(e, capability.Allow)
		w.waits(e, ErrUsed)
		e.Token = "nonsense"
		w.waits(e, ErrMalformed)
	},
	"refused decisions": func(w *world) {
		id := w.waits(escalation("t", `{}`, egress), nil)
		for _, bad := range []struct {
			id   string
			d    Decision
			want error
		}{{"nobody", once, ErrNotFound}, {"", once, ErrNotFound}, {"a\x00b", once, ErrNotFound}, {"\xff", once, ErrNotFound},
			{id, Decision{Approve: true, Scope: 3}, ErrInvalid}, {id, Decision{Comment: "\xff"}, ErrInvalid},
			{id, Decision{Comment: strings.Repeat("c", MaxComment+1)}, ErrInvalid}, {id, Decision{Lifetime: time.Millisecond}, ErrInvalid},
			{id, Decision{Lifetime: -1}, ErrInvalid}, {id, Decision{Lifetime: MaxLifetime + 1}, ErrInvalid}} {
			if _, err := w.l.Decide(context.Background(), "ann", bad.id, bad.d); !errors.Is(err, bad.want) || errors.Is(err, ErrUnavailable) {
				w.Errorf("%q, %+v: %v", bad.id, bad.d, err)
			}
		}
		w.decide(id, reject)
		var late *DecidedError
		if _, err := w.l.Decide(context.Background(), "bob", id, once); !errors.As(err, &late) || late.Reviewer != "ann" || late.State != Rejected {
			w.Errorf("got %v", err)
		}
	},
	"prefixes": func(w *world) {
		id := w.waits(escalation("t", `{}`, egress), nil)
		for prefix, want := range map[string]string{id[:5]: id, id: id, "": "", "ü": "", "\x00": "", "\xff": "", "%": "", "_": ""} {
			got, err := w.l.Find(context.Background(), prefix)
			if got != want || want != "" && err != nil || want == "" && !errors.Is(err, ErrNotFound) {
				w.Errorf("%q: %q, %v", prefix, got, err)
			}
		}
	},
	"bounds": func(w *world) {
		for name, change := range map[string]func(e *Escalation){
			"no tool":              func(e *Escalation) { e.Call.Tool = "" },
			"a lifetime too long":  func(e *Escalation) { e.Lifetime = MaxLifetime + 1 },
			"a negative lifetime":  func(e *Escalation) { e.Lifetime = -1 },
			"arguments no object":  func(e *Escalation) { e.Call.Arguments = json.RawMessage(`[]`) },
			"arguments twice":      func(e *Escalation) { e.Call.Arguments = json.RawMessage(`{"a":1,"a":1}`) },
			"transform not known":  func(e *Escalation) { e.Call.Transform.Kind = 9 },
			"session not in UTF-8": func(e *Escalation) { e.Call.Session = "\xff" },
		} {
			e := escalation("t", `{}`, egress)
			change(e)
			a, err := w.l.Admit(context.Background(), e)
			if !errors.Is(err, ErrInvalid) || a.Outcome.Kind != capability.Escalate || a.Pending != nil {
				w.Errorf("%s: %+v, %v", name, a, err)
			}
		}
	},
}

func TestScenes(t *testing.T) {
	everywhere(t, func(t *testing.T, k kind) {
		for name, scene := range scenes {
			t.Run(name, func(t *testing.T) {
				c := newClock()
				w := &world{t, open(t, k.place(t), &Options{Keys: ring(1), Now: c.now}), c}
				scene(w)
				sound(t, w.l)
			})
		}
	})
}

// A limit of what waits is told, the call still escalates, and there is room again
// once something expires or is decided.
func TestTooMany(t *testing.T) {
	everywhere(t, func(t *testing.T, k kind) {
		c := newClock()
		w := &world{t, open(t, k.place(t), &Options{Keys: ring(1), Now: c.now, Limits: Limits{Waiting: 2, Lifetime: time.Minute}}), c}
		first := w.waits(escalation("a", `{}`, egress), nil)
		c.add(time.Second)
		w.waits(escalation("b", `{}`, egress), nil)
		a, err := w.l.Admit(context.Background(), escalation("c", `{}`, egress))
		if !errors.Is(err, ErrTooMany) || a.Outcome.Kind != capability.Escalate || a.Pending != nil {
			t.Errorf("got %+v, %v", a, err)
		}
		w.waits(escalation("a", `{}`, egress), nil) // waits already
		w.decide(first, reject)
		w.waits(escalation("c", `{}`, egress), nil)
		c.add(time.Minute)
		w.waits(escalation("d", `{}`, egress), nil)
		w.waits(escalation("e", `{}`, egress), nil)
	})
}

// Without a key nothing can be approved; a rejection needs none.
func TestNoKey(t *testing.T) {
	c := newClock()
	w := &world{t, open(t, "memory:", &Options{Now: c.now}), c}
	e := escalation("t", `{}`, egress)
	id := w.waits(e, nil)
	if _, err := w.l.Decide(context.Background(), "ann", id, once); !errors.Is(err, ErrKey) {
		t.Errorf("got %v", err)
	}
	w.decide(id, reject)
	w.denied(e, "not today")
}

func TestWait(t *testing.T) {
	everywhere(t, func(t *testing.T, k kind) {
		l := open(t, k.place(t), &Options{Keys: ring(1)})
		a, err := l.Admit(context.Background(), escalation("t", `{}`, egress))
		if err != nil {
			t.Fatal(err)
		}
		short, cancel := context.WithTimeout(context.Background(), 150*time.Millisecond)
		defer cancel()
		if _, err := l.Wait(short, a.Pending.ID); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		go func() {
			time.Sleep(50 * time.Millisecond)
			if _, err := l.Decide(context.Background(), "ann", a.Pending.ID, once); err != nil {
				t.Error(err)
			}
		}()
		if p, err := l.Wait(context.Background(), a.Pending.ID); err != nil || p.State != Approved {
			t.Errorf("got %+v, %v", p, err)
		}
	})
}
