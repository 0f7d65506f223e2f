package approvals

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/opa-gate/opa-gate/ledger"
)

// How streams run.
const (
	pollEvery   = 250 * time.Millisecond // how often the ledger is asked what others wrote
	beatEvery   = 15 * time.Second       // silence of a stream
	streamTime  = 15 * time.Minute       // of one stream; its client comes back
	writeTime   = 10 * time.Second       // of one write, where a deadline can be set
	keptEvents  = 1000                   // for clients that come back
	keptBytes   = 16 << 20               //
	queuedBatch = 64                     // batches of events that a client has not read
	readAtOnce  = 500                    // entries
)

// An event is a change, as it goes over the wire.
type event struct {
	seq  int64
	text []byte
}

// A hub asks the ledger what is new, once for all clients, and as long as there
// are any.
type hub struct {
	ledger *ledger.Ledger
	log    func(format string, args ...any)
	most   int // clients
	keeps  int // events

	mu      sync.Mutex
	closed  chan struct{} // no client is taken any more
	clients map[*client]struct{}
	awake   chan struct{} // there may be something new
	running context.CancelFunc
	// kept are all changes after the entry from; at is the last entry that was
	// looked at.
	kept     []event
	size     int
	from, at int64
	down     bool // the ledger could not be asked
}

// A client reads one stream.
type client struct {
	who    Holder
	events chan []event
	gone   chan struct{} // closed if it does not read
}

func newHub(l *ledger.Ledger, log func(string, ...any), most int) *hub {
	return &hub{ledger: l, log: log, most: most, keeps: keptEvents, closed: make(chan struct{}), clients: map[*client]struct{}{}, awake: make(chan struct{}, 1)}
}

func (h *hub) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	select {
	case <-h.closed:
	default:
		close(h.closed)
	}
}

// nudge has the hub look at once.
func (h *hub) nudge() {
	select {
	case h.awake <- struct{}{}:
	default:
	}
}

var (
	errFull   = errors.New("the server has as many streams open as it takes; try again later")
	errShare  = errors.New("this token has as many streams open as it may; close one")
	errClosed = errors.New("the server is stopping")
)

// join adds a client who knows everything up to the entry last. It returns what
// is new for it; ok is false if that is not known any more.
func (h *hub) join(ctx context.Context, who Holder, last int64) (c *client, missed []event, at int64, ok bool, err error) {
	head, _, err := h.ledger.Head(ctx)
	if err != nil {
		return nil, nil, 0, false, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	select {
	case <-h.closed:
		return nil, nil, 0, false, errClosed
	default:
	}
	own := 0
	for other := range h.clients {
		if other.who == who {
			own++
		}
	}
	switch {
	case len(h.clients) >= h.most:
		return nil, nil, 0, false, errFull
	case own >= max(1, h.most/4):
		return nil, nil, 0, false, errShare
	}
	if h.running == nil {
		h.kept, h.size, h.down = nil, 0, false
		h.from = head
		if last > 0 && last < head && head-last <= int64(h.keeps) {
			h.from = last // another hub sent what was before
		}
		h.at = h.from
		run, stop := context.WithCancel(context.Background())
		h.running = stop
		go h.run(run)
	}
	c = &client{who: who, events: make(chan []event, queuedBatch), gone: make(chan struct{})}
	h.clients[c] = struct{}{}
	if last < h.from || last > max(head, h.at) {
		return c, nil, h.at, false, nil
	}
	i, _ := slices.BinarySearchFunc(h.kept, last+1, func(e event, seq int64) int { return int(e.seq - seq) })
	return c, slices.Clone(h.kept[i:]), h.at, true, nil
}

// leave takes a client out; the last one turns off the light.
func (h *hub) leave(c *client) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.clients, c)
	if len(h.clients) == 0 && h.running != nil {
		h.running()
		h.running = nil
	}
}

func (h *hub) run(ctx context.Context) {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		more, err := h.look(ctx)
		if ctx.Err() != nil {
			return
		}
		h.tell(ctx, err)
		if more && err == nil {
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-h.awake:
		}
	}
}

// look sends what is new; more tells that there may be more.
func (h *hub) look(ctx context.Context) (more bool, err error) {
	h.mu.Lock()
	at := h.at
	h.mu.Unlock()
	entries, err := h.ledger.Since(ctx, at, readAtOnce)
	if err != nil || len(entries) == 0 {
		return false, err
	}
	var batch []event
	for i := range entries {
		e := &entries[i]
		if e.Ref == "" {
			continue // of something else
		}
		p, err := h.ledger.Pending(ctx, e.Ref)
		switch {
		case errors.Is(err, ledger.ErrNotFound):
			continue
		case errors.Is(err, ledger.ErrDamaged): // an audit tells; what else happens is to be seen
			h.log("approvals: entry %d: %v", e.Seq, err)
			continue
		case err != nil:
			return false, err
		}
		withoutToken(p)
		text, err := encode(struct {
			Seq      int64           `json:"seq"`
			At       time.Time       `json:"at"`
			Approval *ledger.Pending `json:"approval"` // as it is now
		}{e.Seq, e.At, p})
		if err != nil {
			return false, err
		}
		batch = append(batch, event{e.Seq, fmt.Appendf(nil, "id: %d\nevent: change\ndata: %s\n\n", e.Seq, text)})
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if ctx.Err() != nil { // another run may have begun
		return false, ctx.Err()
	}
	h.at = entries[len(entries)-1].Seq
	h.keep(batch)
	h.send(batch)
	return len(entries) == readAtOnce, nil
}

func (h *hub) keep(batch []event) {
	for _, e := range batch {
		h.kept = append(h.kept, e)
		h.size += len(e.text)
	}
	for len(h.kept) > h.keeps || h.size > keptBytes {
		h.from = h.kept[0].seq
		h.size -= len(h.kept[0].text)
		h.kept = slices.Delete(h.kept, 0, 1)
	}
}

// send gives a batch to all clients. Who has not read those before is let go, and
// comes back for what it missed.
func (h *hub) send(batch []event) {
	if len(batch) == 0 {
		return
	}
	for c := range h.clients {
		select {
		case c.events <- batch:
		default:
			close(c.gone)
			delete(h.clients, c)
		}
	}
	// The last one may have gone; leave stops the run.
}

// tell has the clients know whether the ledger can be asked.
func (h *hub) tell(ctx context.Context, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if ctx.Err() != nil || (err != nil) == h.down {
		return
	}
	h.down = err != nil
	if h.down {
		h.log("approvals: the stream of changes waits: %v", err)
	}
	h.send([]event{h.state()})
}

func (h *hub) state() event {
	return event{text: fmt.Appendf(nil, "event: ledger\ndata: {\"available\":%t}\n\n", !h.down)}
}

// events answers with the stream.
func (h *Handler) events(w http.ResponseWriter, req *http.Request, who Holder) {
	var last int64
	if text := req.Header.Get("Last-Event-ID"); text != "" {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 0 {
			refuse(w, http.StatusBadRequest, "Last-Event-ID: expected the id of an event of this stream")
			return
		}
		last = n
	}
	c, missed, at, ok, err := h.hub.join(req.Context(), who, last)
	switch {
	case errors.Is(err, errFull), errors.Is(err, errShare), errors.Is(err, errClosed):
		w.Header().Set("Retry-After", "10")
		refuse(w, http.StatusServiceUnavailable, err.Error())
		return
	case err != nil:
		h.failed(w, err)
		return
	}
	defer h.hub.leave(c)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // for proxies that would hold it back
	w.WriteHeader(http.StatusOK)
	out := stream{w, http.NewResponseController(w)}
	if !ok { // too long ago, or never: the client reads the list anew
		missed = []event{{text: fmt.Appendf(nil, "id: %d\nevent: reset\ndata: {\"head\":%d}\n\n", at, at)}}
	}
	h.hub.mu.Lock()
	missed = append(missed, h.hub.state())
	h.hub.mu.Unlock()
	if out.send(missed) == nil {
		h.follow(req, c, out)
	}
}

// follow sends what comes until the stream is to end.
func (h *Handler) follow(req *http.Request, c *client, out stream) {
	beat := time.NewTicker(beatEvery)
	defer beat.Stop()
	end := time.NewTimer(streamTime)
	defer end.Stop()
	for {
		var batch []event
		select {
		case <-req.Context().Done():
			return
		case <-h.hub.closed:
			return
		case <-c.gone:
			return
		case <-end.C:
			return
		case batch = <-c.events:
		case now := <-beat.C:
			batch = []event{{text: fmt.Appendf(nil, "event: beat\ndata: {\"now\":%q}\n\n", now.UTC().Format(time.RFC3339Nano))}}
		}
		// What is about to be told is for whoever has the token still.
		if who, ok, err := h.tokens.Holder(bearer(req)); err != nil || !ok || who != c.who {
			return
		}
		if out.send(batch) != nil {
			return
		}
	}
}

type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

func (s stream) send(batch []event) error {
	_ = s.control.SetWriteDeadline(time.Now().Add(writeTime)) // not every ResponseWriter can
	for _, e := range batch {
		if _, err := s.w.Write(e.text); err != nil {
			return err
		}
	}
	return s.control.Flush()
}
