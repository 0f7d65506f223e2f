package ledger

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Export writes every entry as one line of JSON, oldest first, and returns how
// many there are. What is recorded meanwhile may be left out.
func (l *Ledger) Export(ctx context.Context, to io.Writer) (int64, error) {
	w := bufio.NewWriter(to)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	var seq, n int64
	for {
		step, cancel := l.bounded(ctx)
		entries, err := l.store.since(step, seq, 1000)
		cancel()
		if err != nil {
			return n, err
		}
		if len(entries) == 0 {
			return n, w.Flush()
		}
		for i := range entries {
			if err := enc.Encode(&entries[i]); err != nil {
				return n, err
			}
			seq = entries[i].Seq
			n++
		}
	}
}

// An Import is what became of the lines of a file.
type Import struct {
	Added   int64     // entries that are in the ledger now
	Present int64     // entries that were there before
	Refused []Refusal // lines that are not in the ledger, at most 1,000 of them
	Failed  int64     // how many such lines there are
}

// A Refusal is a line that was not imported.
type Refusal struct {
	Line    int    `json:"line"`
	Problem string `json:"problem"`
}

// maxLine bounds one line, in bytes.
const maxLine = 2 * maxBody

// Import reads lines of JSON. A line is an entry, as [Ledger.Export] writes it,
// which must be the next one of this ledger's chain or in it already; or a record
// about a skill (specification, section 6), which is appended as one that importer
// brought: reviewer and decided_at stay as they are. A line that is torn or
// foreign is counted and named, and the rest goes on. The error is that of
// reading or of a store; what was added before stays.
func (l *Ledger) Import(ctx context.Context, importer string, from io.Reader) (*Import, error) {
	if err := checkReviewer(importer); err != nil {
		return nil, err
	}
	im := &importing{l: l, importer: importer}
	r := bufio.NewReaderSize(from, 64<<10)
	for {
		line, err := readLine(r)
		im.line++
		switch {
		case errors.Is(err, io.EOF) && len(line) == 0:
			return &im.out, im.flush(ctx)
		case errors.Is(err, errLongLine):
			im.refuse(im.line, fmt.Sprintf("it is longer than %d bytes", maxLine))
		case err != nil && !errors.Is(err, io.EOF):
			return &im.out, errors.Join(im.flush(ctx), err)
		case len(bytes.TrimSpace(line)) > 0:
			im.take(line, errors.Is(err, io.EOF))
		}
		if len(im.batch) >= 500 {
			if err := im.flush(ctx); err != nil {
				return &im.out, err
			}
		}
		if errors.Is(err, io.EOF) {
			return &im.out, im.flush(ctx)
		}
	}
}

var errLongLine = errors.New("the line is too long")

// readLine returns the next line; what is too long is read past.
func readLine(r *bufio.Reader) (line []byte, err error) {
	long := false
	for {
		part, err := r.ReadSlice('\n')
		if !long {
			line = append(line, part...)
		}
		if len(line) > maxLine {
			long, line = true, nil
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if long {
			return nil, errLongLine
		}
		return line, err
	}
}

type importing struct {
	l        *Ledger
	importer string
	line     int
	batch    []func(tx *Tx) error
	out      Import
}

func (im *importing) refuse(line int, problem string) {
	im.out.Failed++
	if len(im.out.Refused) < 1000 {
		im.out.Refused = append(im.out.Refused, Refusal{line, problem})
	}
}

// take reads one line. Whether it fits is for the transaction to tell.
func (im *importing) take(text []byte, last bool) {
	line := im.line
	if !json.Valid(text) {
		problem := "it is not JSON"
		if last {
			problem = "it is torn: it is not JSON, and no line end follows"
		}
		im.refuse(line, problem)
		return
	}
	var e Entry
	if err := strict(text, &e); err == nil && e.Seq > 0 {
		im.batch = append(im.batch, func(tx *Tx) error { return im.entry(tx, line, &e) })
		return
	}
	var b record
	err := strict(text, &b)
	if err == nil {
		b.ImportedBy = im.importer
		if b.DecidedAt.IsZero() {
			err = errors.New("decided_at is missing")
		} else {
			err = b.check()
		}
	}
	if err != nil {
		im.refuse(line, "it is foreign: expected an entry of a ledger, or a record about a skill: "+err.Error())
		return
	}
	im.batch = append(im.batch, func(tx *Tx) error { return im.record(tx, &b) })
}

func (im *importing) entry(tx *Tx, line int, e *Entry) error {
	if e.Seq <= tx.end.seq {
		there, err := tx.w.since(tx.ctx, e.Seq-1, 1)
		if err != nil {
			return err
		}
		if len(there) == 1 && there[0].Seq == e.Seq && there[0].Hash == e.Hash && e.sum() == e.Hash {
			im.out.Present++
			return nil
		}
		im.refuse(line, fmt.Sprintf("it is foreign: entry %d is another one in this ledger", e.Seq))
		return nil
	}
	if problem := follows(tx.end, e); problem != "" {
		im.refuse(line, fmt.Sprintf("it is foreign: after entry %d of this ledger, %s", tx.end.seq, problem))
		return nil
	}
	if err := tx.put(*e); err != nil {
		return err
	}
	im.out.Added++
	return nil
}

// record appends a record about a skill, unless this very one is there.
func (im *importing) record(tx *Tx, b *record) error {
	known, err := tx.Subject(rulingSubject(b.Fingerprint))
	if err != nil {
		return err
	}
	for i := range known {
		var k record
		if err := known[i].read(&k); err != nil {
			return err
		}
		if k.record() == b.record() {
			im.out.Present++
			return nil
		}
	}
	if _, err := tx.Append(Draft{Kind: KindRuling, Subject: rulingSubject(b.Fingerprint), Body: b}); err != nil {
		return err
	}
	im.out.Added++
	return nil
}

// flush does what was read, in one transaction.
func (im *importing) flush(ctx context.Context) error {
	if len(im.batch) == 0 {
		return nil
	}
	before := im.out
	err := im.l.Update(ctx, func(tx *Tx) error {
		for _, do := range im.batch {
			if err := do(tx); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		im.out = before
	}
	im.batch = im.batch[:0]
	return err
}
