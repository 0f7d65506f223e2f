package evaluator

import (
	"context"
	"encoding/json"
	"reflect"
	"sync/atomic"

	"github.com/opa-gate/opa-gate/capability"
	"github.com/opa-gate/opa-gate/skill"
	"github.com/opa-gate/opa-gate/wire"
)

// Native is the native reference as an [Engine].
type Native struct {
	System string // what sentences for a person call this system; "" is capability.DefaultSystem
}

// Decide implements [Engine]. Its one error is that of [capability.Call.Validate].
func (n Native) Decide(_ context.Context, c *capability.Call) (capability.Outcome, error) {
	if err := c.Validate(); err != nil {
		return capability.Outcome{}, err
	}
	return c.Decide(n.System), nil
}

// Skill implements [Engine]. Its one error is that of [skill.Request.Validate].
func (n Native) Skill(_ context.Context, r *skill.Request) (skill.Answer, error) {
	if err := r.Validate(); err != nil {
		return skill.Answer{}, err
	}
	return r.Decide(), nil
}

// Both returns an engine that asks two and answers only if they agree on every
// member. Otherwise the error is a *[DifferenceError].
func Both(reference, other Engine) Engine { return both{reference, other} }

type both struct{ reference, other Engine }

func (b both) Decide(ctx context.Context, c *capability.Call) (capability.Outcome, error) {
	want, wantErr := b.reference.Decide(ctx, c)
	got, gotErr := b.other.Decide(ctx, c)
	return agree(want, got, wantErr, gotErr, want.Equal(got))
}

func (b both) Skill(ctx context.Context, r *skill.Request) (skill.Answer, error) {
	want, wantErr := b.reference.Skill(ctx, r)
	got, gotErr := b.other.Skill(ctx, r)
	return agree(want, got, wantErr, gotErr, reflect.DeepEqual(want, got))
}

func agree[T json.Marshaler](want, got T, wantErr, gotErr error, equal bool) (T, error) {
	var zero T
	switch {
	case wantErr != nil && gotErr != nil:
		return zero, wantErr
	case wantErr != nil || gotErr != nil || !equal:
		return zero, &DifferenceError{show(want, wantErr), show(got, gotErr)}
	}
	return want, nil
}

func show(v json.Marshaler, err error) string {
	if err != nil {
		return "error: " + err.Error()
	}
	text, err := v.MarshalJSON()
	if err != nil {
		return "error: " + err.Error()
	}
	return string(text)
}

// DecideJSON decides one call document (specification, section 7) with an
// engine and returns the decision document. Errors are those of wire.ParseCall
// and of the engine.
func DecideJSON(ctx context.Context, engine Engine, doc []byte) ([]byte, error) {
	c, err := wire.ParseCall(doc)
	if err != nil {
		return nil, err
	}
	o, err := engine.Decide(ctx, c)
	if err != nil {
		return nil, err
	}
	return o.AppendJSON(make([]byte, 0, 512))
}

// A Switch is an [Engine] that another one replaces while it is in use. Each
// answer is wholly that of one of them: the one that was in force when the
// question came. Its zero value decides nothing. It is safe for use by several
// goroutines.
type Switch struct{ current atomic.Pointer[Engine] }

// Replace puts an engine in force. Questions that come after it has returned
// are never answered by the one before, nor by anything that one has compiled.
func (s *Switch) Replace(engine Engine) { s.current.Store(&engine) }

// Decide implements [Engine]. Without an engine in force the error is
// [ErrNoEngine].
func (s *Switch) Decide(ctx context.Context, c *capability.Call) (capability.Outcome, error) {
	if engine := s.current.Load(); engine != nil && *engine != nil {
		return (*engine).Decide(ctx, c)
	}
	return capability.Outcome{}, ErrNoEngine
}

// Skill implements [Engine]. Without an engine in force the error is
// [ErrNoEngine].
func (s *Switch) Skill(ctx context.Context, r *skill.Request) (skill.Answer, error) {
	if engine := s.current.Load(); engine != nil && *engine != nil {
		return (*engine).Skill(ctx, r)
	}
	return skill.Answer{}, ErrNoEngine
}

// A Documents judges documents as they are on the wire with an engine: it reads
// one with package wire, decides it and writes the answer. It satisfies the
// fixtures' Judge.
type Documents struct{ Engine Engine }

// Call decides one call document; see [DecideJSON].
func (d Documents) Call(ctx context.Context, doc []byte) ([]byte, error) {
	return DecideJSON(ctx, d.Engine, doc)
}

// Skill decides one skill document. Errors are those of wire.ParseSkill and of
// the engine.
func (d Documents) Skill(ctx context.Context, doc []byte) ([]byte, error) {
	r, err := wire.ParseSkill(doc)
	if err != nil {
		return nil, err
	}
	a, err := d.Engine.Skill(ctx, r)
	if err != nil {
		return nil, err
	}
	return a.MarshalJSON()
}
