package hook

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/opa-gate/opa-gate/agent/hook/line"
)

// An Opened is a handler with what it holds.
type Opened struct {
	Handler *Handler
	Close   func() error
}

// A Server answers hooks from one process. Its fields are set before it serves.
type Server struct {
	// Open makes the handler anew, from what is in force now.
	Open func(ctx context.Context) (*Opened, error)
	// Files are what the handler is made from: when one changes, it is made anew.
	Files []Watched
	// Deadline is how long one answer may take.
	Deadline time.Duration
	// Idle is how long the server stays when nobody asks.
	Idle time.Duration

	mu      sync.Mutex
	current *generation
}

// A generation is a handler that is made anew when the files change.
type generation struct {
	*Opened
	stamp string
	users sync.WaitGroup
}

// Serve answers until nobody has asked for a while, or ctx ends. It closes the
// listener.
func (s *Server) Serve(ctx context.Context, l *line.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	var (
		answering sync.WaitGroup
		quiet     = time.AfterFunc(s.Idle, cancel)
	)
	defer quiet.Stop()
	slots := make(chan struct{}, maxAtOnce)
	for {
		conn, err := l.AcceptOwn()
		if err != nil {
			answering.Wait()
			s.end()
			if errors.Is(err, net.ErrClosed) && ctx.Err() != nil {
				return nil
			}
			return err
		}
		quiet.Reset(s.Idle)
		slots <- struct{}{}
		answering.Go(func() {
			defer func() { <-slots; quiet.Reset(s.Idle); _ = conn.Close() }()
			s.answer(conn)
		})
	}
}

// maxAtOnce is how many hooks are answered at the same time; others wait.
const maxAtOnce = 256

func (s *Server) answer(conn *net.UnixConn) {
	ctx, cancel := context.WithTimeout(context.Background(), s.Deadline)
	defer cancel()
	if conn.SetDeadline(time.Now().Add(s.Deadline)) != nil {
		return
	}
	// Whoever asks and gets no whole answer decides by itself.
	_ = line.Answer(conn, func(q line.Request) line.Reply {
		r := s.reply(ctx, q)
		return line.Reply{Stdout: r.Stdout, Stderr: []byte(r.Stderr), Exit: r.Exit}
	})
}

func (s *Server) reply(ctx context.Context, q line.Request) (r Reply) {
	defer func() {
		if p := recover(); p != nil {
			r = Block(fmt.Sprintf("the gate failed: %v; report this, and make the call again", p))
		}
	}()
	g, err := s.use(ctx)
	if err != nil {
		return Refuse(err)
	}
	defer g.users.Done()
	return g.Handler.Handle(ctx, q.Input, q.Project)
}

// use returns the handler of what is in force now. The caller counts among its
// users.
func (s *Server) use(ctx context.Context) (*generation, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	stamp, err := stampOf(s.Files) // before anything is read, so that a change meanwhile is seen next time
	if err != nil {
		s.retire()
		return nil, err
	}
	if s.current == nil || s.current.stamp != stamp {
		s.retire()
		opened, err := s.Open(ctx)
		if err != nil {
			return nil, err
		}
		// A ledger that was not there is made as it is opened: the next call sees
		// another stamp then, and opens it once more.
		s.current = &generation{Opened: opened, stamp: stamp}
	}
	s.current.users.Add(1)
	return s.current, nil
}

// retire closes the present handler once its last user is done.
func (s *Server) retire() {
	if g := s.current; g != nil {
		s.current = nil
		go func() {
			g.users.Wait()
			_ = g.Close()
		}()
	}
}

func (s *Server) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g := s.current; g != nil {
		s.current = nil
		g.users.Wait()
		_ = g.Close()
	}
}
