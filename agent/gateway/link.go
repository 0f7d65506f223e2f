package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// The errors of a request that got no answer.
var (
	errEnded   = errors.New("has ended")
	errTimeout = errors.New("did not answer in time")
	errBusy    = errors.New("has too many requests in flight")
	errStuck   = errors.New("does not read what it is sent")
	errGarbled = errors.New("sent something that is no message, which may have been the answer")
)

// The bounds of what waits to be written to one side: how many messages, and how many
// times the longest one. A server that leaves more unread is stuck; a client that does
// makes its servers wait.
const (
	queued      = 1024
	queuedBytes = 4
)

// A link is one JSON-RPC connection with the requests that this program has in
// flight on it.
type link struct {
	name   string // for messages to people
	conn   mcp.Connection
	bound  int           // requests in flight
	room   int64         // bytes that wait to be written
	expiry time.Duration // of a request
	log    *slog.Logger

	// request is called for every request and notification, in their order, by
	// the goroutine that reads.
	request func(*jsonrpc.Request)
	// patient links make senders wait when the queue is full. Others refuse.
	patient bool
	// idle, if there is one, reports whether nothing of the other side's is to be
	// answered any more. Where its messages end, the link lasts a moment until then.
	idle func() bool

	out    chan jsonrpc.Message
	unsent atomic.Int64  // of out, and the one that is being written
	bytes  atomic.Int64  // of those
	freed  chan struct{} // has something once there is more room than before
	done   chan struct{} // closed when the link has ended

	mu      sync.Mutex
	waiting map[int64]*awaited
	last    int64
	ended   error
}

// An awaited is a request that waits for its answer.
type awaited struct {
	answer func(*jsonrpc.Response, error) // called once
	timer  *time.Timer
}

// start begins to read and to write. It returns at once.
func (l *link) start() {
	l.out = make(chan jsonrpc.Message, queued)
	l.done = make(chan struct{})
	l.freed = make(chan struct{}, 1)
	l.waiting = make(map[int64]*awaited)
	go l.write()
	go l.read()
}

func (l *link) read() {
	for {
		message, err := l.conn.Read(context.Background())
		if bad, ok := errors.AsType[*badMessage](err); ok {
			l.log.Warn("not a message", "from", l.name, "error", bad.Error())
			if !errors.Is(bad, errNoise) {
				l.failAll(errGarbled)
			}
			continue
		}
		if err != nil {
			l.linger(err)
			l.end(err)
			return
		}
		switch m := message.(type) {
		case *jsonrpc.Response:
			l.answered(m)
		case *jsonrpc.Request:
			l.request(m)
		}
	}
}

// lingering is how long answers that are on their way have when the side that they
// are for has said its last.
const lingering = time.Second

// linger waits until what was asked is answered.
func (l *link) linger(err error) {
	if l.idle == nil || !errors.Is(err, io.EOF) {
		return
	}
	for end := time.Now().Add(lingering); time.Now().Before(end) && (!l.idle() || l.unsent.Load() > 0); {
		select {
		case <-time.After(time.Millisecond):
		case <-l.done:
			return
		}
	}
}

// answered hands an answer to whoever waits for it.
func (l *link) answered(m *jsonrpc.Response) {
	n, ok := m.ID.Raw().(int64)
	var w *awaited
	if ok {
		w = l.take(n)
	}
	if w == nil {
		l.log.Warn("an answer to no request that waits", "from", l.name, "id", m.ID.Raw())
		return
	}
	w.answer(m, nil)
}

// take removes the request with that number from those that wait.
func (l *link) take(n int64) *awaited {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.waiting[n]
	if w == nil {
		return nil
	}
	delete(l.waiting, n)
	w.timer.Stop()
	return w
}

func (l *link) fail(n int64, err error) {
	if w := l.take(n); w != nil {
		w.answer(nil, l.wrap(err))
	}
}

func (l *link) failAll(err error) {
	l.mu.Lock()
	all := l.waiting
	l.waiting = make(map[int64]*awaited)
	l.mu.Unlock()
	for _, w := range all {
		w.timer.Stop()
		w.answer(nil, l.wrap(err))
	}
}

func (l *link) wrap(err error) error { return fmt.Errorf("%s %w", l.name, err) }

// end closes the link because of err: nothing can be sent any more, and
// whatever waits for an answer gets none.
func (l *link) end(err error) {
	l.mu.Lock()
	first := l.ended == nil
	if first {
		l.ended = errEnded
		close(l.done)
	}
	l.mu.Unlock()
	if !first {
		return
	}
	l.failAll(errEnded)
	closed := l.conn.Close()
	switch {
	case closed != nil:
		l.log.Warn("connection ended", "with", l.name, "error", closed.Error())
	case errors.Is(err, io.EOF), errors.Is(err, context.Canceled):
		l.log.Info("connection ended", "with", l.name, "error", err.Error())
	default:
		l.log.Warn("connection ended", "with", l.name, "error", err.Error())
	}
}

func (l *link) write() {
	for {
		select {
		case message := <-l.out:
			err := l.conn.Write(context.Background(), message)
			l.unsent.Add(-1)
			l.bytes.Add(-size(message))
			select {
			case l.freed <- struct{}{}:
			default:
			}
			if err == nil {
				continue
			}
			l.log.Warn("not sent", "to", l.name, "error", err.Error())
			if r, ok := message.(*jsonrpc.Request); ok && r.IsCall() {
				l.fail(r.ID.Raw().(int64), errEnded)
			}
		case <-l.done:
			return
		}
	}
}

// send queues a message.
func (l *link) send(message jsonrpc.Message) error {
	select {
	case <-l.done:
		return l.wrap(errEnded)
	default:
	}
	for n := size(message); !l.reserve(n); {
		if !l.patient {
			return l.wrap(errStuck)
		}
		select {
		case <-l.freed:
		case <-l.done:
			return l.wrap(errEnded)
		}
	}
	l.out <- message // for which there is room
	return nil
}

// size is about how many bytes a message has.
func size(message jsonrpc.Message) int64 {
	switch m := message.(type) {
	case *jsonrpc.Request:
		return int64(len(m.Method) + len(m.Params))
	case *jsonrpc.Response:
		return int64(len(m.Result))
	}
	return 0
}

// reserve takes room for a message of n bytes, if there is some. A message by
// itself always has room.
func (l *link) reserve(n int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	waiting, bytes := l.unsent.Load(), l.bytes.Load()
	if waiting >= queued || waiting > 0 && bytes+n > l.room {
		return false
	}
	l.unsent.Add(1)
	l.bytes.Add(n)
	return true
}

// call sends a request. Answer is called once, unless call returns an error.
// An expiry of zero is the link's; a negative one waits for ever.
func (l *link) call(method string, params json.RawMessage, expiry time.Duration, answer func(*jsonrpc.Response, error)) (int64, error) {
	if expiry == 0 {
		expiry = l.expiry
	}
	l.mu.Lock()
	if l.ended != nil {
		l.mu.Unlock()
		return 0, l.wrap(l.ended)
	}
	if len(l.waiting) >= l.bound {
		l.mu.Unlock()
		return 0, l.wrap(errBusy)
	}
	l.last++
	n := l.last
	w := &awaited{answer: answer}
	if expiry < 0 {
		w.timer = time.AfterFunc(1<<62, func() {})
	} else {
		w.timer = time.AfterFunc(expiry, func() {
			l.fail(n, errTimeout)
			l.cancel(n, "no answer in time")
		})
	}
	l.waiting[n] = w
	l.mu.Unlock()
	if err := l.send(&jsonrpc.Request{ID: numericID(n), Method: method, Params: params}); err != nil {
		if l.take(n) == nil {
			return n, nil // the link ended between, and answer was told
		}
		return 0, err
	}
	return n, nil
}

// ask sends a request and waits for its answer. If ctx ends first the other
// side is told that nobody waits any more.
func (l *link) ask(ctx context.Context, method string, params json.RawMessage, expiry time.Duration) (*jsonrpc.Response, error) {
	type reply struct {
		response *jsonrpc.Response
		err      error
	}
	replied := make(chan reply, 1)
	n, err := l.call(method, params, expiry, func(r *jsonrpc.Response, err error) { replied <- reply{r, err} })
	if err != nil {
		return nil, err
	}
	select {
	case r := <-replied:
		return r.response, r.err
	case <-ctx.Done():
		cause := context.Cause(ctx)
		var params []member
		if c, ok := errors.AsType[*cancelled](cause); ok {
			params = c.params
		}
		l.abandon(n, params)
		return nil, cause
	}
}

// cancelled is why a context ended: who asked gave up, in the words of params.
type cancelled struct{ params []member }

func (*cancelled) Error() string { return "the request was cancelled" }

// abandon gives up on a request and tells the other side, in the words of
// params if there are some.
func (l *link) abandon(n int64, params []member) {
	if l.take(n) == nil {
		return
	}
	l.cancelWith(n, params)
}

func (l *link) cancel(n int64, reason string) {
	l.cancelWith(n, []member{{"reason", quote(reason)}})
}

func (l *link) cancelWith(n int64, params []member) {
	id, _ := json.Marshal(n) // a number
	text := writeObject(with(params, "requestId", id))
	if err := l.send(&jsonrpc.Request{Method: "notifications/cancelled", Params: text}); err != nil {
		l.log.Warn("not cancelled", "error", err.Error())
	}
}

func (l *link) notify(method string, params json.RawMessage) {
	if err := l.send(&jsonrpc.Request{Method: method, Params: params}); err != nil {
		l.log.Warn("not sent", "method", method, "error", err.Error())
	}
}

// reply answers a request of the other side.
func (l *link) reply(id jsonrpc.ID, result json.RawMessage, failure error) {
	if err := l.send(&jsonrpc.Response{ID: id, Result: result, Error: failure}); err != nil {
		l.log.Warn("not answered", "id", id.Raw(), "error", err.Error())
	}
}
