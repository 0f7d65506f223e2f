package evaluator

import (
	"context"
	"encoding/json"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/internal/race"
)

// The finite domain of the decision: every value of every member that a rule
// can turn on, an origin and a grant that are left out among them, with one text
// for each text.
const (
	domainSize  = 126720
	domainTool  = "post_message"
	domainVeto  = "not on a Friday"
	domainNote  = "mind the gap"
	domainArgs  = `{"amount":9007199254740993,"to":["a",null]}`
	domainBases = 32 + 1
	annotations = 8
)

// domainCall returns cell i of the domain; coordinates are the digits of i.
func domainCall(i int) *capability.Call {
	digit := func(n int) int {
		d := i % n
		i /= n
		return d
	}
	c := &capability.Call{Tool: domainTool}
	switch digit(3) {
	case 1:
		c.Policy.Transform = capability.Transform{Kind: capability.Rewrite, Arguments: json.RawMessage(domainArgs)}
	case 2:
		c.Policy.Transform = capability.Transform{Kind: capability.InjectContext, Note: domainNote}
	}
	c.Policy.SandboxEscalation = digit(2) == 1
	c.Policy.RequiresHuman = digit(2) == 1
	if digit(2) == 1 {
		c.Policy.Vetoed, c.Policy.Veto = true, domainVeto
	}
	c.Taint = capability.Clean
	if digit(2) == 1 {
		c.Taint = capability.Tainted
	}
	if c.Grant.Base = capability.Set(digit(domainBases)); c.Grant.Base > capability.All {
		c.Grant, c.LeftOut = capability.DefaultGrant(), capability.GrantMember
	}
	a := digit(annotations)
	c.Profile.ReadOnly = capability.HintOf(a&1 != 0)
	c.Profile.Destructive = capability.HintOf(a&2 != 0)
	c.Profile.OpenWorld = capability.HintOf(a&4 != 0)
	if origin := digit(9 + 1); origin < 9 {
		c.Profile.Origin = capability.Origins()[origin]
	} else {
		c.LeftOut |= capability.OriginMember
	}
	return c
}

// overDomain runs check on every cell, on all processors, until one returns
// false. It fails the test unless every cell was visited.
func overDomain(t *testing.T, check func(i int, c *capability.Call) bool) {
	t.Helper()
	var next, visited atomic.Int64
	var stop atomic.Bool
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for !stop.Load() {
				start := int(next.Add(256)) - 256
				if start >= domainSize {
					return
				}
				for i := start; i < min(start+256, domainSize); i++ {
					if !check(i, domainCall(i)) {
						stop.Store(true)
						return
					}
					visited.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if !t.Failed() && visited.Load() != domainSize {
		t.Errorf("visited %d of %d cells", visited.Load(), domainSize)
	}
}

func embedded(t testing.TB) *Evaluator {
	t.Helper()
	e, err := New(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestDomainHasNoCellTwice(t *testing.T) {
	race.SkipSlow(t)
	if n := (9 + 1) * annotations * domainBases * 2 * 2 * 2 * 2 * 3; n != domainSize {
		t.Fatalf("the coordinates multiply to %d, want %d", n, domainSize)
	}
	seen := make(map[string]bool, domainSize)
	for i := range domainSize {
		input, err := callInput(domainCall(i))
		if err != nil {
			t.Fatal(err)
		}
		seen[input.String()] = true
	}
	if len(seen) != domainSize {
		t.Errorf("the cells are %d different documents, want %d", len(seen), domainSize)
	}
}

// Parity and properties over the whole domain: native and Rego agree on every
// member in every cell, and what the specification promises holds on the
// answers of each by themselves.
func TestWholeDomain(t *testing.T) {
	if testing.Short() || race.Enabled {
		t.Skip("the whole domain takes minutes under the race detector; it runs without -race and -short")
	}
	engines := map[string]Engine{"native": Native{}, "opa": embedded(t).Interpreter()}
	for name, engine := range engines {
		t.Run(name, func(t *testing.T) {
			ctx := context.Background()
			outcomes := make([]capability.Outcome, domainSize)
			overDomain(t, func(i int, c *capability.Call) bool {
				o, err := engine.Decide(ctx, c)
				if want := c.Decide(""); err != nil || !o.Equal(want) {
					t.Errorf("cell %d: native %+v\n%s %+v, error %v\ncall %+v", i, want, name, o, err, c)
					return false
				}
				outcomes[i] = o
				return true
			})
			overDomain(t, func(i int, c *capability.Call) bool {
				o := &outcomes[i]
				escalates := o.Kind == capability.Escalate
				switch {
				case c.Policy.Vetoed && (o.Kind != capability.Deny || o.Reason != domainVeto):
					t.Errorf("cell %d: a veto gives %v", i, o.Kind)
				case !c.Policy.Vetoed && o.Kind == capability.Deny:
					t.Errorf("cell %d: denied without a veto", i)
				case !c.Policy.Vetoed && !o.Required.Intersect(capability.Markers).Empty() && !escalates:
					t.Errorf("cell %d: a marker gives %v", i, o.Kind)
				case !c.Policy.Vetoed && !o.Required.SubsetOf(o.Granted) && !escalates:
					t.Errorf("cell %d: something is missing and it gives %v", i, o.Kind)
				case c.Profile.Origin == capability.Unknown && o.Required != capability.All:
					t.Errorf("cell %d: unknown requires %v", i, o.Required)
				case c.Profile.Origin == capability.Unknown && c.Taint == capability.Tainted && !c.Policy.Vetoed && !escalates:
					t.Errorf("cell %d: unknown under taint gives %v", i, o.Kind)
				case !o.Granted.SubsetOf(c.Grant.Base):
					t.Errorf("cell %d: %v is granted of %v", i, o.Granted, c.Grant.Base)
				}
				if c.Taint == capability.Tainted {
					clean := &outcomes[i-24] // the taint digit has weight 3*2*2*2
					if !o.Granted.SubsetOf(clean.Granted) {
						t.Errorf("cell %d: taint adds to what is granted", i)
					}
					if o.Kind == capability.Allow && clean.Kind != capability.Allow {
						t.Errorf("cell %d: allowed only when tainted", i)
					}
				}
				return !t.Failed()
			})
		})
	}
}

// Redeclaration never narrows what either engine requires, over all pairs of
// profiles.
func TestRedeclarationNeverNarrows(t *testing.T) {
	e, ctx := embedded(t), context.Background()
	required := func(engine Engine, p capability.Profile) capability.Set {
		o, err := engine.Decide(ctx, &capability.Call{Tool: "t", Profile: p, Taint: capability.Clean})
		if err != nil {
			t.Fatal(err)
		}
		return o.Required
	}
	var profiles []capability.Profile
	for _, o := range capability.Origins() {
		for i := range 27 {
			profiles = append(profiles, capability.Profile{Origin: o, ReadOnly: capability.Hint(i % 3),
				Destructive: capability.Hint(i / 3 % 3), OpenWorld: capability.Hint(i / 9)})
		}
	}
	for name, engine := range map[string]Engine{"native": Native{}, "opa": e.Interpreter(), "auto": e} {
		memo := map[capability.Profile]capability.Set{}
		get := func(p capability.Profile) capability.Set {
			if _, ok := memo[p]; !ok {
				memo[p] = required(engine, p)
			}
			return memo[p]
		}
		for _, p := range profiles {
			for _, next := range profiles {
				if m := p.Redeclare(next); !get(p).SubsetOf(get(m)) || m.Origin != p.Origin {
					t.Fatalf("%s: %+v declared anew as %+v requires %v, before %v", name, p, next, get(m), get(p))
				}
			}
		}
	}
}

// Members that are left out take the same meaning on both engines.
func TestParityOfDefaults(t *testing.T) {
	e, ctx := embedded(t), context.Background()
	for _, o := range capability.Origins() {
		for i := range 27 * 4 {
			c := &capability.Call{Tool: "t", Taint: capability.Clean, Grant: capability.DefaultGrant(), LeftOut: capability.Members(i / 27),
				Profile: capability.Profile{Origin: o, ReadOnly: capability.Hint(i % 3),
					Destructive: capability.Hint(i / 3 % 3), OpenWorld: capability.Hint(i / 9 % 3)}}
			if c.LeftOut.Has(capability.OriginMember) && o != capability.Unknown {
				continue
			}
			want := c.Decide("")
			if got, err := e.Decide(ctx, c); err != nil || !got.Equal(want) {
				t.Errorf("%+v: native %+v, Rego %+v, error %v", c.Profile, want, got, err)
			}
		}
	}
}
