// Package line is the light end of a hook: it asks a resident gate over a Unix
// socket, starts one if there is none, and runs the whole gate where that does
// not work. It imports the standard library only, so that a program made of it
// starts in a millisecond or two.
//
// Most callers need one function, [Run]. The resident gate listens with [Listen]
// and answers each connection with [Answer].
//
// Whatever is wrong with the resident gate or its socket ends in the whole gate
// being run for that call, and if that fails too, in a refusal.
package line

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// The exit codes of a hook. All others let the call run.
const (
	exitDone  = 0
	exitBlock = 2
)

// Bounds of what goes over the socket, in bytes.
const (
	MaxInput  = 16<<20 + 1 // one more than the gate takes, so that it says so itself
	maxOutput = 17 << 20
	maxHeader = 64 << 10
)

// version is that of the messages. Another one is another socket.
const version = 1

// A Request is one hook call.
type Request struct {
	Project string // the folder that the agent works in; "" if it does not say
	Input   []byte // what the agent wrote
}

// A Reply is what the hook answers.
type Reply struct {
	Stdout []byte
	Stderr []byte
	Exit   int // 0 or 2
}

type requestHeader struct {
	Version int    `json:"version"`
	Project string `json:"project"`
	Input   int    `json:"input"`
}

type replyHeader struct {
	Version int `json:"version"`
	Exit    int `json:"exit"`
	Stdout  int `json:"stdout"`
	Stderr  int `json:"stderr"`
}

// errMessage: what came over the socket is no message.
var errMessage = errors.New("this is not a message of opa-gate")

func writeMessage(w io.Writer, header any, parts ...[]byte) error {
	text, err := json.Marshal(header)
	if err != nil {
		return err
	}
	message := append(text, '\n')
	for _, p := range parts {
		message = append(message, p...)
	}
	_, err = w.Write(message)
	return err
}

func readHeader(r *bufio.Reader, header any) error {
	line, err := r.ReadSlice('\n') // no longer than the reader's buffer
	if err != nil {
		return err
	}
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.DisallowUnknownFields()
	if err := dec.Decode(header); err != nil {
		return fmt.Errorf("%w: %w", errMessage, err)
	}
	return nil
}

func readPart(r io.Reader, n, most int) ([]byte, error) {
	if n < 0 || n > most {
		return nil, fmt.Errorf("%w: a part of %d bytes", errMessage, n)
	}
	part, err := io.ReadAll(io.LimitReader(r, int64(n))) // grows with what comes, not with what is claimed
	if err == nil && len(part) < n {
		err = io.ErrUnexpectedEOF
	}
	return part, err
}

// ask sends one request and reads the reply, which must be whole, be followed by
// nothing, and be one that a hook can give.
func ask(conn io.ReadWriter, q Request) (Reply, error) {
	if err := writeMessage(conn, requestHeader{version, q.Project, len(q.Input)}, q.Input); err != nil {
		return Reply{}, err
	}
	in := bufio.NewReaderSize(conn, maxHeader)
	h := replyHeader{Exit: -1}
	if err := readHeader(in, &h); err != nil {
		return Reply{}, err
	}
	if h.Version != version || h.Exit != exitDone && h.Exit != exitBlock {
		return Reply{}, fmt.Errorf("%w: version %d, exit code %d", errMessage, h.Version, h.Exit)
	}
	r := Reply{Exit: h.Exit}
	var err error
	if r.Stdout, err = readPart(in, h.Stdout, maxOutput); err != nil {
		return Reply{}, err
	}
	if r.Stderr, err = readPart(in, h.Stderr, maxOutput); err != nil {
		return Reply{}, err
	}
	if _, err := in.ReadByte(); err != io.EOF {
		return Reply{}, fmt.Errorf("%w: something stands behind it", errMessage)
	}
	if !r.sound() {
		return Reply{}, fmt.Errorf("%w: the answer is not one that a hook gives", errMessage)
	}
	return r, nil
}

// sound reports whether a reply is one that a hook gives: one JSON object with
// exit code 0, or a reason with exit code 2.
func (r Reply) sound() bool {
	if r.Exit == exitBlock {
		return len(r.Stdout) == 0
	}
	text := bytes.TrimSpace(r.Stdout)
	return r.Exit == exitDone && len(text) > 0 && text[0] == '{' && json.Valid(text)
}

// Answer reads the one request of a connection and writes the reply that f
// gives. The connection is not closed.
func Answer(conn io.ReadWriter, f func(Request) Reply) error {
	in := bufio.NewReaderSize(conn, maxHeader)
	var h requestHeader
	if err := readHeader(in, &h); err != nil {
		return err
	}
	if h.Version != version {
		return fmt.Errorf("%w: version %d", errMessage, h.Version)
	}
	input, err := readPart(in, h.Input, MaxInput)
	if err != nil {
		return err
	}
	r := f(Request{Project: h.Project, Input: input})
	return writeMessage(conn, replyHeader{version, r.Exit, len(r.Stdout), len(r.Stderr)}, r.Stdout, r.Stderr)
}

// Default times of a hook.
const (
	// DefaultDeadline is how long a hook may take, besides waiting for a person.
	DefaultDeadline = 20 * time.Second
	// reserve is what is left of it for running the whole gate.
	reserve = 8 * time.Second
)

// pathFlags are the flags of opa-gate hook whose values are paths.
var pathFlags = []string{"--policies", "--catalogue", "--ledger", "--key", "--trust", "--log"}

// read looks at the arguments of opa-gate hook: how long it may take, and
// whether a resident gate can stand for it, which a path that is relative to
// the working directory prevents.
func read(args []string) (deadline time.Duration, shared bool) {
	deadline, shared = DefaultDeadline, true
	var wait time.Duration
	for i, arg := range args {
		name, value, given := strings.Cut(arg, "=")
		if !given && i+1 < len(args) {
			value = args[i+1]
		}
		switch name {
		case "--deadline":
			if d, err := time.ParseDuration(value); err == nil && d > 0 {
				deadline = d
			}
		case "--wait":
			if d, err := time.ParseDuration(value); err == nil && d > 0 {
				wait = d
			}
		}
		for _, flag := range pathFlags {
			if name == flag && !absolute(flag, value) {
				shared = false
			}
		}
	}
	return deadline + wait, shared
}

func absolute(flag, value string) bool {
	if flag == "--ledger" {
		if strings.Contains(value, "://") || value == "memory:" {
			return true
		}
		value = strings.TrimPrefix(value, "sqlite:")
	}
	return strings.HasPrefix(value, "/")
}
