package gateway

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// A badMessage is what a side sent in place of a message. What was sent before
// and after is not touched by it, so the connection goes on.
type badMessage struct{ err error }

func (e *badMessage) Error() string { return e.err.Error() }
func (e *badMessage) Unwrap() error { return e.err }

// errNoise is wrapped by a badMessage that was no attempt at a message: a line
// that some servers print on their way up.
var errNoise = errors.New("a line of text in place of a message")

// A lineConn is an MCP connection on two streams with a message a line. Unlike
// the SDK's it goes on after a line that is no message, and says so by a
// badMessage.
type lineConn struct {
	reader *bufio.Reader
	writer io.Writer
	limit  int // bytes of a line
	stop   func() error
	refuse bool // answer what is no message with an error

	writing  sync.Mutex
	stopping sync.Once
	stopped  error
}

func newLineConn(r io.Reader, w io.Writer, limit int, stop func() error) *lineConn {
	return &lineConn{reader: bufio.NewReaderSize(r, 64<<10), writer: w, limit: limit, stop: stop}
}

// SessionID implements mcp.Connection: a pair of streams has none.
func (c *lineConn) SessionID() string { return "" }

// Read implements mcp.Connection.
func (c *lineConn) Read(context.Context) (jsonrpc.Message, error) {
	for {
		line, err := c.line()
		if err == nil && len(line) == 0 {
			continue
		}
		switch {
		case err != nil:
		case line[0] != '{' && line[0] != '[':
			err = &badMessage{fmt.Errorf("%w (%d bytes)", errNoise, len(line))}
		default:
			var message jsonrpc.Message
			if message, err = decodeMessage(line); err == nil {
				return message, nil
			}
			err = &badMessage{err}
		}
		if bad, ok := errors.AsType[*badMessage](err); ok && c.refuse {
			text := append([]byte(`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":`), quote(bad.Error())...)
			if err := c.write(append(text, '}', '}')); err != nil {
				return nil, err
			}
		}
		return nil, err
	}
}

// line reads a line, without blanks around it. One that is too long is skipped.
func (c *lineConn) line() ([]byte, error) {
	var line []byte
	long := false
	for {
		part, err := c.reader.ReadSlice('\n')
		if !long && len(line)+len(part) > c.limit {
			line, long = nil, true
		}
		if !long {
			line = append(line, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case long && (err == nil || errors.Is(err, io.EOF)):
			return nil, &badMessage{fmt.Errorf("%w: a line longer than %d bytes", errNotMessage, c.limit)}
		case err == nil, errors.Is(err, io.EOF) && len(bytes.TrimSpace(line)) > 0:
			return bytes.TrimSpace(line), nil
		default:
			return nil, err
		}
	}
}

// Write implements mcp.Connection.
func (c *lineConn) Write(_ context.Context, message jsonrpc.Message) error {
	text, err := encodeMessage(message)
	if err != nil {
		return &badMessage{err}
	}
	return c.write(text)
}

func (c *lineConn) write(text []byte) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	_, err := c.writer.Write(append(text, '\n'))
	return err
}

// Close implements mcp.Connection.
func (c *lineConn) Close() error {
	c.stopping.Do(func() {
		if c.stop != nil {
			c.stopped = c.stop()
		}
	})
	return c.stopped
}
