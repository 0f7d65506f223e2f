package ledger

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"
)

// A Hash is a SHA-256. As text it is hexadecimal.
type Hash [sha256.Size]byte

// String returns h in hexadecimal.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// MarshalText implements encoding.TextMarshaler.
func (h Hash) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (h *Hash) UnmarshalText(text []byte) error {
	if n, err := hex.Decode(h[:], text); err != nil || len(text) != 2*len(h) || n != len(h) {
		return fmt.Errorf("expected %d hexadecimal digits, got %q", 2*len(h), text)
	}
	return nil
}

// An Entry is one record of a ledger. The chain: Seq counts from 1 without a
// gap, Prev is the Hash of the entry before (zero for the first), and Hash is that
// of everything else in the entry.
type Entry struct {
	Seq     int64           `json:"seq"`
	At      time.Time       `json:"at"` // never before that of the entry before
	Kind    string          `json:"kind"`
	Subject string          `json:"subject"`       // what the entry is about; entries are looked up by it
	Ref     string          `json:"ref,omitempty"` // the escalation or approval that it belongs to
	Body    json.RawMessage `json:"body"`          // one compact JSON value
	Prev    Hash            `json:"prev"`
	Hash    Hash            `json:"hash"`
}

// A Draft is what a caller says of an entry; the ledger adds the rest.
type Draft struct {
	Kind    string
	Subject string
	Ref     string
	Body    any // what encoding/json makes one value of
}

// chainDomain keeps hashes of entries apart from all others.
const chainDomain = "opa-gate ledger entry 1\n"

// sum is the hash that the rest of e has.
func (e *Entry) sum() Hash {
	h := sha256.New()
	frame := func(field []byte) {
		var length [8]byte
		binary.BigEndian.PutUint64(length[:], uint64(len(field)))
		h.Write(length[:])
		h.Write(field)
	}
	var numbers [16]byte
	binary.BigEndian.PutUint64(numbers[:8], uint64(e.Seq))
	binary.BigEndian.PutUint64(numbers[8:], uint64(e.At.UnixNano()))
	h.Write([]byte(chainDomain))
	h.Write(numbers[:])
	h.Write(e.Prev[:])
	frame([]byte(e.Kind))
	frame([]byte(e.Subject))
	frame([]byte(e.Ref))
	frame(e.Body)
	return Hash(h.Sum(nil))
}

// Bounds of what one entry holds, in bytes.
const (
	maxName = 1 << 20 // kind, subject and ref
	maxBody = 8 << 20
)

// head is the end of a chain.
type head struct {
	seq  int64
	hash Hash
	at   time.Time
}

// entry makes the entry that follows h.
func (h head) entry(d Draft, now time.Time) (Entry, error) {
	body, err := compact(d.Body)
	if err != nil {
		return Entry{}, fmt.Errorf("%w: the body of an entry: %w", ErrInvalid, err)
	}
	switch {
	case d.Kind == "" || d.Subject == "":
		return Entry{}, fmt.Errorf("%w: an entry has a kind and a subject", ErrInvalid)
	case len(d.Kind) > maxName || len(d.Subject) > maxName || len(d.Ref) > maxName || len(body) > maxBody:
		return Entry{}, fmt.Errorf("%w: expected names of at most %d bytes and a body of at most %d", ErrInvalid, maxName, maxBody)
	}
	e := Entry{Seq: h.seq + 1, At: now, Kind: d.Kind, Subject: d.Subject, Ref: d.Ref, Body: body, Prev: h.hash}
	e.Hash = e.sum()
	return e, nil
}

// compact is encoding/json without its escapes for HTML, and without a line end.
func compact(value any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(value); err != nil {
		return nil, err
	}
	return bytes.TrimRight(buf.Bytes(), "\n"), nil
}

// read decodes the body of an entry.
func (e *Entry) read(into any) error {
	if err := json.Unmarshal(e.Body, into); err != nil {
		return fmt.Errorf("%w: entry %d (%s): %w", ErrDamaged, e.Seq, e.Kind, err)
	}
	return nil
}
