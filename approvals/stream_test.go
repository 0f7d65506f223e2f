package approvals

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/opa-gate/opa-gate/ledger"
)

// A listener reads a stream.
type listener struct {
	t      *testing.T
	status int
	lines  *bufio.Scanner
	last   string // id
	stop   func()
}

func (d *desk) listen(token, last string) *listener {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	req, err := http.NewRequestWithContext(ctx, "GET", d.url+api+"/events", nil)
	if err != nil {
		d.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	if last != "" {
		req.Header.Set("Last-Event-ID", last)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		d.t.Fatal(err)
	}
	l := &listener{t: d.t, status: resp.StatusCode, lines: bufio.NewScanner(resp.Body), last: last, stop: func() { cancel(); _ = resp.Body.Close() }}
	l.lines.Buffer(nil, 4<<20)
	d.t.Cleanup(l.stop)
	return l
}

// next returns the next event; "" at the end.
func (l *listener) next() (name, data string) {
	for l.lines.Scan() {
		switch field, text, _ := strings.Cut(l.lines.Text(), ": "); field {
		case "id":
			l.last = text
		case "event":
			name = text
		case "data":
			data = text
		case "":
			return name, data
		}
	}
	return "", ""
}

// changed returns the next change.
func (l *listener) changed() (seq int64, p ledger.Pending) {
	l.t.Helper()
	for {
		name, data := l.next()
		switch name {
		case "":
			l.t.Fatal("the stream ended: ", l.lines.Err())
		case "change":
			var body struct {
				Seq      int64
				Approval ledger.Pending
			}
			if err := json.Unmarshal([]byte(data), &body); err != nil {
				l.t.Fatal(err, data)
			}
			if fmt.Sprint(body.Seq) != l.last {
				l.t.Fatalf("entry %d has the id %s", body.Seq, l.last)
			}
			return body.Seq, body.Approval
		}
	}
}

func (l *listener) want(name, data string) {
	l.t.Helper()
	if n, d := l.next(); n != name || d != data {
		l.t.Errorf("event %s %s, want %s %s", n, d, name, data)
	}
}

// What another process writes is seen within a second, and so is what this one
// does; the signed approval is not sent.
func TestStreamOfOthers(t *testing.T) {
	name := filepath.Join(t.TempDir(), "l.db")
	d := newDesk(t, name)
	other := openLedger(t, name)
	l := d.listen(d.viewer, "0")
	l.want("ledger", `{"available":true}`)
	began := time.Now()
	p := file(t, other, "t", `{"a":1}`, "s", egress)
	if seq, got := l.changed(); seq != 1 || got.ID != p.ID || got.State != ledger.Waiting {
		t.Errorf("%d: %+v", seq, got)
	}
	if took := time.Since(began); took > time.Second {
		t.Errorf("seen after %v", took)
	}
	if err := other.Update(context.Background(), func(tx *ledger.Tx) error {
		_, err := tx.Append(ledger.Draft{Kind: "session", Subject: "session:s", Body: 1})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if status, _, body := d.ask("POST", api+"/"+p.ID+"/decision", d.ann, `{"decision":"approve"}`); status != 200 {
		t.Fatal(body)
	}
	if seq, got := l.changed(); seq != 3 || got.State != ledger.Approved || got.Decision.Reviewer != "token:ann" || got.Decision.Token != "" {
		t.Errorf("%d: %+v", seq, got)
	}
}

func TestStreamResumes(t *testing.T) {
	d := newDesk(t, "memory:")
	stays := d.listen(d.viewer, "0")
	l := d.listen(d.viewer, "0")
	for i := range 3 {
		d.add("t", fmt.Sprintf(`{"i":%d}`, i), "", egress)
		if seq, _ := l.changed(); seq != int64(i+1) {
			t.Fatal(seq)
		}
	}
	l.stop()
	d.add("t", `{"i":3}`, "", egress)
	for range 4 {
		stays.changed()
	}
	l = d.listen(d.viewer, l.last)
	if seq, _ := l.changed(); seq != 4 {
		t.Errorf("first after 3 is %d", seq)
	}
	l = d.listen(d.viewer, "99") // of another ledger
	if n, data := l.next(); n != "reset" || data != `{"head":4}` || l.last != "4" {
		t.Errorf("%s %s, id %s", n, data, l.last)
	}
	for _, last := range []string{"x", "-1", "1.5"} {
		if l := d.listen(d.viewer, last); l.status != 400 {
			t.Errorf("Last-Event-ID %s: status %d", last, l.status)
		}
	}
	// After a restart the ids are the same ones.
	d.serve(d.tokens, 0)
	l = d.listen(d.viewer, "2")
	for _, want := range []int64{3, 4} {
		if seq, _ := l.changed(); seq != want {
			t.Errorf("after the restart %d, want %d", seq, want)
		}
	}
	d.Close()
	if name, _ := l.next(); name != "" || l.lines.Err() != nil {
		t.Errorf("the stream goes on after Close: %s, %v", name, l.lines.Err())
	}
	if l := d.listen(d.viewer, "2"); l.status != 503 {
		t.Errorf("status %d after Close", l.status)
	}
}

// What happened too long ago is not kept: who missed it reads the list anew.
func TestStreamForgets(t *testing.T) {
	d := newDesk(t, "memory:")
	d.hub.keeps = 20
	l := d.listen(d.viewer, "0")
	const n = 30
	for i := range n {
		d.add("t", fmt.Sprintf(`{"i":%d}`, i), "", egress)
	}
	for want := int64(1); want <= n; want++ {
		if seq, _ := l.changed(); seq != want {
			t.Fatalf("%d, want %d", seq, want)
		}
	}
	if name, _ := d.listen(d.viewer, "9").next(); name != "reset" {
		t.Errorf("after 9: %s", name)
	}
	if seq, _ := d.listen(d.viewer, "10").changed(); seq != 11 {
		t.Errorf("after 10: %d", seq)
	}
}

func TestHundredClients(t *testing.T) {
	d := newDesk(t, "memory:")
	var wait sync.WaitGroup
	ready := make(chan struct{}, 100)
	for range 100 {
		wait.Go(func() {
			l := d.listen(d.viewer, "0")
			l.want("ledger", `{"available":true}`)
			ready <- struct{}{}
			for want := int64(1); want <= 20; want++ {
				if seq, _ := l.changed(); seq != want {
					t.Errorf("%d, want %d", seq, want)
				}
			}
		})
	}
	for range 100 {
		<-ready
	}
	for i := range 20 {
		d.add("t", fmt.Sprintf(`{"i":%d}`, i), "", egress)
	}
	wait.Wait()
}

func TestStreamsAreBounded(t *testing.T) {
	d := newDesk(t, "memory:")
	d.serve(d.tokens, 8)
	first := d.listen(d.viewer, "0")
	d.listen(d.viewer, "0")
	if l := d.listen(d.viewer, "0"); l.status != 503 {
		t.Errorf("a third one of a share of two: status %d", l.status)
	}
	if l := d.listen(d.ann, "0"); l.status != 200 {
		t.Errorf("one of somebody else: status %d", l.status)
	}
	first.stop()
	for end := time.Now().Add(10 * time.Second); d.listen(d.viewer, "0").status != 200; {
		if time.Now().After(end) {
			t.Fatal("a place that was left is not free")
		}
		time.Sleep(10 * time.Millisecond)
	}
	d.serve(d.tokens, 1)
	d.listen(d.viewer, "0")
	if l := d.listen(d.ann, "0"); l.status != 503 {
		t.Errorf("more than there are places: status %d", l.status)
	}
}

// Who does not read is let go, and holds nobody up.
func TestSlowReader(t *testing.T) {
	d := newDesk(t, "memory:")
	slow, _, _, _, err := d.hub.join(context.Background(), Holder{"vera", Viewer}, 0)
	if err != nil {
		t.Fatal(err)
	}
	l := d.listen(d.ann, "0")
	for i := range int64(queuedBatch + 2) {
		d.add("t", fmt.Sprintf(`{"i":%d}`, i), "", egress)
		d.hub.nudge()
		if seq, _ := l.changed(); seq != i+1 { // one batch each
			t.Fatal(seq)
		}
	}
	select {
	case <-slow.gone:
	default:
		t.Error("the slow reader is still there")
	}
	d.hub.mu.Lock()
	n := len(d.hub.clients)
	d.hub.mu.Unlock()
	if n != 1 {
		t.Errorf("%d clients", n)
	}
	d.hub.leave(slow)
}

// A reader whose connection takes nothing any more loses it.
func TestStalledConnection(t *testing.T) {
	d := newDesk(t, "memory:")
	w := &stalled{ResponseRecorder: httptest.NewRecorder()}
	req := httptest.NewRequest("GET", api+"/events", nil)
	req.Header.Set("Authorization", "Bearer "+d.viewer)
	req.Header.Set("Last-Event-ID", "0")
	d.ServeHTTP(w, req)
	if w.deadline.Before(time.Now()) || w.deadline.After(time.Now().Add(writeTime)) {
		t.Errorf("the deadline of writing is %v", w.deadline)
	}
	d.hub.mu.Lock()
	defer d.hub.mu.Unlock()
	if len(d.hub.clients) != 0 || d.hub.running != nil {
		t.Error("it is still there")
	}
}

type stalled struct {
	*httptest.ResponseRecorder
	deadline time.Time
}

func (s *stalled) SetWriteDeadline(t time.Time) error { s.deadline = t; return nil }
func (s *stalled) Write([]byte) (int, error)          { return 0, os.ErrDeadlineExceeded }

// A ledger that is away is told of, and so is that it is back.
func TestStreamTellsOfLedger(t *testing.T) {
	d := newDesk(t, "memory:")
	l := d.listen(d.viewer, "0")
	l.want("ledger", `{"available":true}`)
	d.hub.tell(context.Background(), errors.New("away"))
	d.hub.tell(context.Background(), errors.New("away"))
	l.want("ledger", `{"available":false}`)
	l.want("ledger", `{"available":true}`) // the next look
}
