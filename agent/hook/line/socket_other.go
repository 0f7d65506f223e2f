//go:build !linux

package line

import (
	"errors"
	"net"
	"time"
)

// ErrRuns: another resident gate has the socket.
var ErrRuns = errors.New("a resident gate runs already")

// errHere: the standard library tells who is at the other end of a socket on
// Linux only.
var errHere = errors.New("a resident gate needs Linux; here the whole gate is run for each call")

func resident(string, []string, Request, time.Time) (Reply, error) { return Reply{}, errHere }

// A Listener is the socket of a resident gate.
type Listener struct{ *net.UnixListener }

// Listen makes the socket of a command line and listens.
func Listen(string, []string) (*Listener, error) { return nil, errHere }

// AcceptOwn accepts the next connection of the same user.
func (l *Listener) AcceptOwn() (*net.UnixConn, error) { return nil, errHere }
