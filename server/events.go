package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/open-policy-agent/opa/v1/logging"
	"github.com/open-policy-agent/opa/v1/metrics"
	"github.com/open-policy-agent/opa/v1/plugins"
	"github.com/open-policy-agent/opa/v1/plugins/logs"
	opaserver "github.com/open-policy-agent/opa/v1/server"
	"github.com/open-policy-agent/opa/v1/server/types"
	"github.com/open-policy-agent/opa/v1/storage"
	"github.com/open-policy-agent/opa/v1/util"

	"github.com/opa-gate/opa-gate/evaluator"
	"github.com/opa-gate/opa-gate/wire"
)

// events go to OPA's decision logs, as those of its own APIs do.
type events struct {
	manager *plugins.Manager
}

// begin begins the events of one request. Without decision logs it costs nothing.
func (e *events) begin(req *http.Request, p *policies, r route) *eventLog {
	plugin := logs.Lookup(e.manager)
	if plugin == nil {
		return nil
	}
	return &eventLog{plugin: plugin, store: e.manager.Store, req: req, policies: p, route: r, batch: newID()}
}

func newID() string {
	id, err := uuid.NewRandom()
	if err != nil {
		return "" // OPA logs events without one, too
	}
	return id.String()
}

// An eventLog has the events of one request; nil has none.
type eventLog struct {
	plugin   *logs.Plugin
	store    storage.Store
	req      *http.Request
	policies *policies
	route    route
	batch    string
}

// decided logs an answer. Where an answer cannot be logged there is none, as
// OPA has it.
func (l *eventLog) decided(ctx context.Context, doc, answer []byte) error {
	if l == nil {
		return nil
	}
	var result any
	if err := util.UnmarshalJSON(answer, &result); err != nil {
		return unlogged(err)
	}
	return l.log(ctx, doc, &result, nil)
}

// failed logs that there is no answer. Nobody knows where in a document that is
// none its arguments are, and a message may repeat a part of it, so with the
// default mask neither is logged.
func (l *eventLog) failed(ctx context.Context, doc []byte, err error) {
	if l == nil {
		return
	}
	message := err.Error()
	if l.policies.masked {
		doc, message = nil, plain(err)
	}
	code := types.CodeInternal
	if statusOf(err) < http.StatusInternalServerError {
		code = types.CodeInvalidParameter
	}
	_ = l.log(ctx, doc, nil, types.NewErrorV1(code, "%s", message)) // there is no answer anyway
}

// plain words an error without what the document or the answer has in it.
func plain(err error) string {
	var e *wire.Error
	if errors.As(err, &e) {
		for _, kind := range []error{wire.ErrSyntax, wire.ErrSchema, wire.ErrTooLarge} {
			if errors.Is(err, kind) {
				return "line " + strconv.Itoa(e.Line) + ": " + kind.Error()
			}
		}
	}
	for _, known := range []error{evaluator.ErrNotDecision, evaluator.ErrPolicy, context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	return "it was not decided"
}

func unlogged(err error) error { return fmt.Errorf("the decision could not be logged: %w", err) }

// log logs an event. What went wrong is custom.error: with events that have
// OPA's member error, OPA cannot divide a chunk that has become too large, and
// loses all of it.
func (l *eventLog) log(ctx context.Context, doc []byte, result *any, failure *types.ErrorV1) error {
	// The mask is evaluated in a transaction of its own: one for the whole
	// request would keep new policies waiting, and everybody behind them.
	txn, err := l.store.NewTransaction(ctx)
	if err != nil {
		return unlogged(err)
	}
	defer l.store.Abort(context.WithoutCancel(ctx), txn)
	info := &opaserver.Info{
		Txn:                txn,
		Bundles:            l.policies.bundles,
		DecisionID:         newID(),
		BatchDecisionID:    l.batch,
		RemoteAddr:         l.req.RemoteAddr,
		HTTPRequestContext: logging.HTTPRequestContext{Header: l.req.Header},
		Path:               l.route.entry,
		Timestamp:          time.Now().UTC(),
		Results:            result,
		Metrics:            metrics.New(),
	}
	if failure != nil {
		info.Custom = map[string]any{"error": map[string]any{"code": failure.Code, "message": failure.Message}}
	}
	var input any
	if len(doc) > 0 && util.UnmarshalJSON(doc, &input) == nil { // what is not JSON is not logged
		info.Input = &input
	}
	if err := l.plugin.Log(ctx, info); err != nil {
		return unlogged(err)
	}
	return nil
}
