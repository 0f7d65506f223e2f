package server

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"
	"github.com/open-policy-agent/opa/v1/logging"
	"github.com/open-policy-agent/opa/v1/metrics"
	"github.com/open-policy-agent/opa/v1/plugins"
	"github.com/open-policy-agent/opa/v1/plugins/logs"
	opaserver "github.com/open-policy-agent/opa/v1/server"
	"github.com/open-policy-agent/opa/v1/storage"
	"github.com/open-policy-agent/opa/v1/util"
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
	txn      storage.Transaction // in which the operator's mask is evaluated
}

func (l *eventLog) end() {
	if l != nil && l.txn != nil {
		l.store.Abort(context.WithoutCancel(l.req.Context()), l.txn)
	}
}

// decided logs an answer. Where an answer cannot be logged there is none, as
// OPA has it.
func (l *eventLog) decided(ctx context.Context, doc, answer []byte) error {
	if l == nil {
		return nil
	}
	return l.log(ctx, doc, answer, nil)
}

// failed logs that there is no answer.
func (l *eventLog) failed(ctx context.Context, doc []byte, err error) {
	if l != nil {
		_ = l.log(ctx, doc, nil, err) // the answer is an error already
	}
}

func (l *eventLog) log(ctx context.Context, doc, answer []byte, failure error) error {
	if l.txn == nil {
		txn, err := l.store.NewTransaction(ctx)
		if err != nil {
			return fmt.Errorf("the decision could not be logged: %w", err)
		}
		l.txn = txn
	}
	info := &opaserver.Info{
		Txn:                l.txn,
		Bundles:            l.policies.bundles,
		DecisionID:         newID(),
		BatchDecisionID:    l.batch,
		RemoteAddr:         l.req.RemoteAddr,
		HTTPRequestContext: logging.HTTPRequestContext{Header: l.req.Header},
		Path:               l.route.entry,
		Timestamp:          time.Now().UTC(),
		Error:              failure,
		Metrics:            metrics.New(),
	}
	var input any
	if util.UnmarshalJSON(doc, &input) == nil { // what is not JSON is not logged
		info.Input = &input
	}
	if answer != nil {
		var result any
		if err := util.UnmarshalJSON(answer, &result); err != nil {
			return fmt.Errorf("the decision could not be logged: %w", err)
		}
		info.Results = &result
	}
	if err := l.plugin.Log(ctx, info); err != nil {
		return fmt.Errorf("the decision could not be logged: %w", err)
	}
	return nil
}
