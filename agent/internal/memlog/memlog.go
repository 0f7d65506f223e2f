// Package memlog is an agent.Log that lasts as long as the process, for tests.
package memlog

import (
	"context"
	"sync"
	"time"

	"github.com/opa-gate/opa-gate/agent"
)

// A Log keeps entries in memory. The zero Log is empty.
type Log struct {
	Now func() time.Time // time.Now if nil
	Err error            // what every call fails with, if not nil

	mu      sync.Mutex
	entries []agent.Entry
}

// Update implements agent.Log.
func (l *Log) Update(_ context.Context, subject string, f func([]agent.Entry, time.Time) ([]agent.Draft, error)) ([]agent.Entry, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.Err != nil {
		return nil, l.Err
	}
	now := time.Now
	if l.Now != nil {
		now = l.Now
	}
	at := now().UTC()
	drafts, err := f(l.subject(subject), at)
	if err != nil {
		return nil, err
	}
	var added []agent.Entry
	for _, d := range drafts {
		added = append(added, agent.Entry{
			Seq: int64(len(l.entries) + len(added) + 1), At: at, Kind: d.Kind, Subject: d.Subject, Ref: d.Ref, Body: d.Body,
		})
	}
	l.entries = append(l.entries, added...)
	return added, nil
}

// Subject implements agent.Log.
func (l *Log) Subject(_ context.Context, subject string) ([]agent.Entry, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.subject(subject), l.Err
}

func (l *Log) subject(subject string) []agent.Entry {
	var out []agent.Entry
	for _, e := range l.entries {
		if e.Subject == subject {
			out = append(out, e)
		}
	}
	return out
}

// Since implements agent.Log.
func (l *Log) Since(_ context.Context, seq int64, limit int) ([]agent.Entry, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := l.entries[min(int(seq), len(l.entries)):]
	return append([]agent.Entry(nil), out[:min(limit, len(out))]...), l.Err
}
