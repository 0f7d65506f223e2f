package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/opa-gate/opa-gate/evaluator"
)

const (
	million  = 1_000_000
	heapGoal = 200 << 20
)

// writeCalls writes n different calls, one a line.
func writeCalls(w io.Writer, n int) error {
	out := bufio.NewWriterSize(w, bufferSize)
	for i := range n {
		if _, err := fmt.Fprintf(out, `{"tool":{"name":"tool-%d","origin":"fetcher"},"taint":"tainted"}`+"\n", i); err != nil {
			return err
		}
	}
	return out.Flush()
}

// watcher counts the answers, and looks at the heap now and then.
type watcher struct {
	lines int
	looks int
	peak  uint64
}

// Write implements io.Writer.
func (w *watcher) Write(p []byte) (int, error) {
	w.lines += bytes.Count(p, []byte{'\n'})
	if w.looks++; w.looks%64 == 0 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		w.peak = max(w.peak, m.HeapInuse)
	}
	return len(p), nil
}

// A million documents take no more memory than a few.
func TestDecideMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("a million documents take their time; run without -short")
	}
	in, feed := io.Pipe()
	go func() { _ = feed.CloseWithError(writeCalls(feed, million)) }()
	var out watcher
	var stderr bytes.Buffer
	if code := run([]string{"decide", "--engine", "native", "--format", "json"}, in, &out, &stderr); code != exitDone {
		t.Fatalf("exit code %d: %.300s", code, stderr.String())
	}
	if out.lines != million {
		t.Errorf("%d answers, want %d", out.lines, million)
	}
	if out.peak == 0 || out.peak > heapGoal {
		t.Errorf("the heap grew to %d bytes, want at most %d", out.peak, heapGoal)
	}
	t.Logf("peak of the heap: %d MiB", out.peak>>20)
}

// The answer to a document is there before the next document is written.
func TestDecideInteractive(t *testing.T) {
	for name, documents := range map[string][]string{
		"lines": {`{"tool":{"name":"a"},"taint":"clean"}` + "\n", `{"tool":{"name":"b"},"taint":"clean"}` + "\n"},
		"span":  {"{\"tool\":{\"name\":\n\"a\"},\"taint\":\"clean\"\n}\n", "{\"tool\":{\"name\":\n\"b\"},\"taint\":\"clean\"}\n"},
		"array": {`[{"tool":{"name":"a"},"taint":"clean"}`, `,{"tool":{"name":"b"},"taint":"clean"}`},
	} {
		t.Run(name, func(t *testing.T) {
			in, feed := io.Pipe()
			answers, out := io.Pipe()
			go func() {
				run([]string{"decide", "--engine", "native"}, in, out, io.Discard)
				_ = out.Close()
			}()
			lines := bufio.NewScanner(answers)
			for i, document := range documents {
				if _, err := io.WriteString(feed, document); err != nil {
					t.Fatal(err)
				}
				if !lines.Scan() || !strings.HasSuffix(lines.Text(), string(rune('a'+i))) {
					t.Fatalf("answer %d is %q", i, lines.Text())
				}
			}
			_ = feed.Close()
			_, _ = io.Copy(io.Discard, answers)
		})
	}
}

type failing struct{ err error }

// Write implements io.Writer.
func (f failing) Write([]byte) (int, error) { return 0, f.err }

// Nobody reading any more is no reason to complain; a disk that is full is.
func TestOutputFails(t *testing.T) {
	const call = `{"tool":{"name":"a"},"taint":"clean"}`
	for _, args := range [][]string{{"decide", "--engine", "native"}, {"decide", "--engine", "native", "--format", "json"}, {"version"}} {
		for err, want := range map[error]bool{syscall.EPIPE: false, syscall.ENOSPC: true} {
			var stderr bytes.Buffer
			code := run(args, strings.NewReader(call), failing{&os.PathError{Op: "write", Path: "stdout", Err: err}}, &stderr)
			if code != exitInput || (stderr.Len() > 0) != want {
				t.Errorf("%v, %v: exit code %d, stderr %q", args, err, code, &stderr)
			}
		}
	}
}

func BenchmarkDecide(b *testing.B) {
	var input bytes.Buffer
	const n = 1000
	if err := writeCalls(&input, n); err != nil {
		b.Fatal(err)
	}
	opa, err := evaluator.New(context.Background(), nil)
	if err != nil {
		b.Fatal(err)
	}
	for name, engine := range map[string]evaluator.Engine{"native": evaluator.Native{}, "opa": opa} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(input.Len()))
			for b.Loop() {
				s := &task{in: bytes.NewReader(input.Bytes()), out: bufio.NewWriter(io.Discard), stderr: io.Discard, json: true}
				if code, err := answer(s, callWork(context.Background(), engine)); code != exitDone || err != nil {
					b.Fatal(code, err)
				}
			}
		})
	}
}

// BenchmarkStream is the reader alone.
func BenchmarkStream(b *testing.B) {
	var lines bytes.Buffer
	if err := writeCalls(&lines, 1000); err != nil {
		b.Fatal(err)
	}
	text := strings.TrimSuffix(lines.String(), "\n")
	for name, input := range map[string]string{
		"lines": text,
		"array": "[" + strings.ReplaceAll(text, "\n", ",\n") + "]",
		"span":  strings.ReplaceAll(text, "{\"tool\"", "{\n\"tool\""),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(input)))
			for b.Loop() {
				r := newReader(strings.NewReader(input), false)
				for {
					if _, err := r.next(); err != nil {
						break
					}
				}
			}
		})
	}
}
