package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/opa-gate/opa-gate/capability"
)

// A process is a server that was started.
type process struct {
	*exec.Cmd
	addr string
	said bytes.Buffer
}

// launch starts a server on a free port and waits until it answers.
func launch(program string, args ...string) (*process, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		return nil, err
	}
	p := &process{Cmd: exec.Command(program, append(args, "--addr", addr)...), addr: addr}
	p.Stderr = &p.said
	if err := p.Start(); err != nil {
		return nil, err
	}
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		resp, err := http.Get("http://" + addr + "/health")
		if err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return p, nil
			}
		}
		if time.Now().After(deadline) {
			p.stop()
			return nil, fmt.Errorf("%s does not answer: %s", program, p.said.String())
		}
	}
}

func (p *process) stop() {
	_ = p.Process.Kill() // it may have ended
	_ = p.Wait()
}

// memory returns the resident set in KiB, or 0 where the system does not tell.
func (p *process) memory() int {
	text, _ := os.ReadFile("/proc/" + strconv.Itoa(p.Process.Pid) + "/status")
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			n, _ := strconv.Atoi(strings.Fields(rest)[0])
			return n
		}
	}
	return 0
}

// documents are calls of every origin, taint and mood, some with a policy.
func documents() []string {
	var docs []string
	for i, origin := range capability.Origins() {
		for _, taint := range []string{"clean", "tainted"} {
			for j, rest := range []string{``, `,"policy":{"requires_human":true}`, `,"grant":{"base":["local-read"]}`} {
				docs = append(docs, fmt.Sprintf(`{"tool":{"name":"tool_%d","origin":%q,"read_only":%v},"taint":%q%s}`, i, origin.String(), j != 1, taint, rest))
			}
		}
	}
	return docs
}

// agree fails unless both servers answer every document alike.
func agree(docs []string, stock, gate *process) error {
	for _, doc := range docs {
		var wrapped struct{ Result any }
		if err := post(stock, "/v1/data/gate/call/decision", `{"input":`+doc+`}`, &wrapped); err != nil {
			return err
		}
		var answer any
		if err := post(gate, "/v1/gate/call", doc, &answer); err != nil {
			return err
		}
		if answer == nil || !reflect.DeepEqual(wrapped.Result, answer) {
			return fmt.Errorf("the servers disagree on %s: stock OPA %v, opa-gate %v", doc, wrapped.Result, answer)
		}
	}
	return nil
}

func post(p *process, path, body string, answer any) error {
	resp, err := http.Post("http://"+p.addr+path, "application/json", strings.NewReader(body))
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", path, resp.Status)
	}
	return json.NewDecoder(resp.Body).Decode(answer)
}

// request is the text of a whole request.
func request(path, body string) []byte {
	return fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", path, len(body), body)
}

// measure puts requests over several connections for a while. The machine that
// asks is the one that answers, so it asks as cheaply as it can.
func (w *way) measure(connections int, round time.Duration, counts bool) error {
	var mu sync.Mutex
	var work sync.WaitGroup
	var failed error
	total := 0
	begin := time.Now()
	for c := range connections {
		work.Go(func() {
			latencies, err := w.ask(c, begin.Add(round))
			mu.Lock()
			defer mu.Unlock()
			total += len(latencies)
			if counts {
				w.latencies = append(w.latencies, latencies...)
			}
			failed = errors.Join(failed, err)
		})
	}
	work.Wait()
	if counts {
		w.rates = append(w.rates, float64(total*w.each)/time.Since(begin).Seconds())
	}
	return failed
}

func (w *way) ask(first int, until time.Time) ([]time.Duration, error) {
	conn, err := net.Dial("tcp", w.server.addr)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	in := bufio.NewReaderSize(conn, 64<<10)
	var latencies []time.Duration
	var body []byte
	for i := first; ; i++ {
		begin := time.Now()
		if begin.After(until) {
			return latencies, nil
		}
		if _, err := conn.Write(w.requests[i%len(w.requests)]); err != nil {
			return nil, err
		}
		if body, err = readAnswer(in, body[:0]); err != nil {
			return nil, err
		}
		latencies = append(latencies, time.Since(begin))
		if n := bytes.Count(body, []byte(`"outcome":"`)); n != w.each {
			return nil, fmt.Errorf("%d answers, want %d: %.200s", n, w.each, body)
		}
	}
}

// readAnswer reads one answer with status 200 and a length.
func readAnswer(in *bufio.Reader, body []byte) ([]byte, error) {
	length := -1
	for i := 0; ; i++ {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return nil, err
		}
		line = bytes.TrimRight(line, "\r\n")
		if i == 0 && !bytes.HasPrefix(line, []byte("HTTP/1.1 200 ")) {
			return nil, fmt.Errorf("the server answers %s", line)
		}
		if len(line) == 0 {
			break
		}
		name, value, _ := bytes.Cut(line, []byte(": "))
		if strings.EqualFold(string(name), "Content-Length") {
			if length, err = strconv.Atoi(string(value)); err != nil {
				return nil, err
			}
		}
	}
	if length < 0 {
		return nil, errors.New("the answer has no length")
	}
	if cap(body) < length {
		body = make([]byte, length)
	}
	body = body[:length]
	_, err := io.ReadFull(in, body)
	return body, err
}
