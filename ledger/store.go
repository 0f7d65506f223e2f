package ledger

import (
	"context"
	"time"
)

// A store keeps the entries of one ledger. There are three: in memory, SQLite and
// PostgreSQL. They are safe for use by several goroutines, and the two databases
// by several processes. Their errors match ErrUnavailable.
type store interface {
	reader
	// update runs f in the one writing transaction at a time. What f puts is there
	// for good once update returns nil, and all of it is gone otherwise.
	update(ctx context.Context, f func(w writer) error) error
	close() error
}

// A reader finds entries.
type reader interface {
	head(ctx context.Context) (head, error)
	// last returns the last entry of a subject, if it has any.
	last(ctx context.Context, subject string) (Entry, bool, error)
	// subject returns all entries of a subject, oldest first.
	subject(ctx context.Context, subject string) ([]Entry, error)
	// ref returns all entries with a ref, oldest first.
	ref(ctx context.Context, ref string) ([]Entry, error)
	// since returns the first entries after seq, oldest first.
	since(ctx context.Context, seq int64, limit int) ([]Entry, error)
	// kind returns the last entries of a kind before seq, newest first.
	kind(ctx context.Context, kind string, before int64, limit int) ([]Entry, error)
	// waiting returns the last filings before seq that wait and have not expired by
	// now, newest first; before 0 is the end. Count returns how many wait in all.
	waiting(ctx context.Context, now time.Time, before int64, limit int) ([]Entry, error)
	count(ctx context.Context, now time.Time) (int, error)
	// refs returns the first refs of all entries that begin with prefix, in order, and
	// waitingRefs those of filings that wait.
	refs(ctx context.Context, prefix string, limit int) ([]string, error)
	waitingRefs(ctx context.Context, prefix string, limit int) ([]string, error)
}

// A writer is a reader in a writing transaction.
type writer interface {
	reader
	// put appends an entry, which follows the head.
	put(ctx context.Context, e Entry) error
	// open has a filing wait until expires; shut ends that. They keep an index of
	// what the entries say.
	open(ctx context.Context, ref string, seq int64, expires time.Time) error
	shut(ctx context.Context, ref string) error
	// lapse forgets what has expired by now.
	lapse(ctx context.Context, now time.Time) error
}
