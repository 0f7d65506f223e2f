package agent

import (
	"context"
	"time"
)

// An Entry is one record of a [Log], oldest first.
type Entry struct {
	Seq     int64
	At      time.Time
	Kind    string
	Subject string
	Ref     string
	Body    []byte // JSON
}

// A Draft is what an update adds to a log.
type Draft struct {
	Kind    string
	Subject string
	Ref     string
	Body    []byte // JSON
}

// A Log keeps entries, durably, and only ever appends. It is safe for use by
// several goroutines and processes.
type Log interface {
	// Update shows f the history of a subject and appends what it returns, in
	// one step: nobody else appends to the subject in between. The entries are
	// durable when Update returns them. F may be called again.
	Update(ctx context.Context, subject string, f func(history []Entry, now time.Time) ([]Draft, error)) ([]Entry, error)
	// Subject returns the history of one subject.
	Subject(ctx context.Context, subject string) ([]Entry, error)
	// Since returns up to limit entries after the one numbered seq.
	Since(ctx context.Context, seq int64, limit int) ([]Entry, error)
}
