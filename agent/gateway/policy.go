package gateway

import (
	"context"
	"errors"

	"github.com/opa-gate/opa-gate/agent"
	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/ledger"
)

// A Policy is the Gate that an agent.Gate is: the operator's policies and
// catalogue, the taint of conversations, and people's approvals. Policies see a
// tool under the name that coding agents know it by, mcp__SERVER__TOOL.
type Policy struct {
	Gate   *agent.Gate
	Ledger *ledger.Ledger         // that the gate's approvals are in
	Where  func(id string) string // how a person can answer a pending escalation; nil says nothing
}

// NewPolicy returns the Policy of a gate whose catalogue the configuration
// completes: a tool that the catalogue does not name has the origin of its
// server.
func NewPolicy(g agent.Gate, c *Config, l *ledger.Ledger, where func(id string) string) *Policy {
	for _, s := range c.Servers {
		g.Catalogue = g.Catalogue.Over(agent.Tool{
			Pattern: toolName(s.Name, "*"),
			Profile: capability.Profile{Origin: s.Origin},
		})
	}
	return &Policy{Gate: &g, Ledger: l, Where: where}
}

func toolName(server, tool string) string { return "mcp__" + server + "__" + tool }

// Begin implements Gate.
func (p *Policy) Begin(ctx context.Context, session string) error {
	_, err := p.Gate.Sessions.Begin(ctx, session)
	return err
}

// Profile implements Gate.
func (p *Policy) Profile(server, tool string, declared capability.Profile) capability.Profile {
	return p.Gate.Catalogue.Lookup(toolName(server, tool)).Declared(declared)
}

func (c *Call) request() agent.Request {
	return agent.Request{
		Session: c.Session, Tool: toolName(c.Server, c.Tool), CallID: c.ID,
		Arguments: c.Arguments, Declared: &c.Profile,
	}
}

// Decide implements Gate.
func (p *Policy) Decide(ctx context.Context, c *Call) (Verdict, error) {
	v, err := p.Gate.Decide(ctx, c.request())
	if err != nil {
		return Verdict{}, err
	}
	c.harmless = !v.Tainting
	out := Verdict{Outcome: v.Outcome}
	if v.Asks() && v.Pending != "" {
		out.Pending = &Pending{ID: v.Pending}
		if p.Where != nil {
			out.Pending.Where = p.Where(v.Pending)
		}
	}
	return out, nil
}

// Returned implements Gate.
func (p *Policy) Returned(ctx context.Context, c *Call, failed bool) error {
	if c.harmless {
		return nil // there is nothing to put on record, and nothing to ask the ledger
	}
	_, err := p.Gate.Result(ctx, agent.Result{Request: c.request(), Failed: failed})
	return err
}

// Answer implements Gate. If somebody else was first, what they said stands.
func (p *Policy) Answer(ctx context.Context, id, reviewer string, approve bool) error {
	_, err := p.Ledger.Decide(ctx, reviewer, id, ledger.Decision{Approve: approve, Comment: "answered in the MCP client"})
	if errors.Is(err, ledger.ErrDecided) {
		return nil
	}
	return err
}

// Await implements Gate.
func (p *Policy) Await(ctx context.Context, id string) error { return p.Gate.Approvals.Wait(ctx, id) }
