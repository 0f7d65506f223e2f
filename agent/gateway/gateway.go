package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/google/uuid"
)

// A Gateway serves MCP clients by the servers of its configuration. It is safe
// for use by several goroutines.
type Gateway struct {
	config         Config
	gate           Gate
	log            *slog.Logger
	serverLog      io.Writer
	states         *states
	keepAliveEvery time.Duration
	allTime        time.Duration
}

// Options are what is not in a configuration. The zero value is good.
type Options struct {
	Log       *slog.Logger // nil: nothing is logged
	ServerLog io.Writer    // what servers write on their standard error; nil is this program's
}

// New returns a gateway. Its errors wrap [ErrConfig].
func New(config Config, gate Gate, o *Options) (*Gateway, error) {
	if err := config.check(); err != nil {
		return nil, errors.Join(ErrConfig, err)
	}
	g := &Gateway{config: config, gate: gate, log: slog.New(slog.DiscardHandler), serverLog: os.Stderr, states: newStates(), keepAliveEvery: keepAliveEvery, allTime: allTime}
	if o != nil && o.Log != nil {
		g.log = o.Log
	}
	if o != nil && o.ServerLog != nil {
		g.serverLog = o.ServerLog
	}
	return g, nil
}

// NewSessionID returns the id of a conversation that nobody else has.
func NewSessionID() string { return uuid.Must(uuid.NewV7()).String() }

// ServeStdio serves one client, a message a line, until in ends or ctx does.
// Session is the id of the conversation, see [NewSessionID]. Reviewer is who the client's user is: the name that
// approvals given through the client are recorded under.
func (g *Gateway) ServeStdio(ctx context.Context, session, reviewer string, in io.Reader, out io.Writer) error {
	if err := g.gate.Begin(ctx, session); err != nil {
		return fmt.Errorf("the conversation cannot begin: %w", err)
	}
	conn := newLineConn(in, out, g.config.MaxMessage, nil)
	conn.refuse = true
	s, err := g.newSession(session, reviewer, conn)
	if err != nil {
		return err
	}
	s.wait(ctx)
	return ctx.Err()
}
