package ledger

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

func export(t testing.TB, l *Ledger) string {
	t.Helper()
	var buf bytes.Buffer
	n, err := l.Export(context.Background(), &buf)
	if err != nil || int(n) != strings.Count(buf.String(), "\n") {
		t.Fatalf("%d lines, %v", n, err)
	}
	return buf.String()
}

func load(t testing.TB, l *Ledger, text string) *Import {
	t.Helper()
	im, err := l.Import(context.Background(), "importer", strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return im
}

// refusals expects that lines are refused, each for what holds a text.
func refusals(t *testing.T, im *Import, added, present int64, want ...string) {
	t.Helper()
	if im.Added != added || im.Present != present || im.Failed != int64(len(want)) || len(im.Refused) != len(want) {
		t.Fatalf("got %+v", im)
	}
	for i, w := range want {
		line, text, _ := strings.Cut(w, " ")
		if fmt.Sprint(im.Refused[i].Line) != line || !strings.Contains(im.Refused[i].Problem, text) {
			t.Errorf("expected %q, got %+v", w, im.Refused[i])
		}
	}
}

func TestTransfer(t *testing.T) {
	everywhere(t, func(t *testing.T, k kind) {
		from := history(t, k.place(t), newClock())
		text := export(t, from)
		to := open(t, k.place(t), &Options{Keys: ring(1), Now: newClock().now})
		refusals(t, load(t, to, text), historyLength, 0)
		if export(t, to) != text {
			t.Error("what was exported, imported and exported is not the same")
		}
		refusals(t, load(t, to, text), 0, historyLength)
		lines := strings.SplitAfter(text, "\n")
		if _, n, err := to.Waiting(context.Background(), 9); err != nil || n != 0 {
			t.Errorf("%d wait, %v", n, err)
		}
		// What waits there waits here, and an approval that was used is used.
		half := open(t, k.place(t), &Options{Keys: ring(1), Now: newClock().now})
		refusals(t, load(t, half, strings.Join(lines[:7], "")), 7, 0)
		if ps, n, err := half.Waiting(context.Background(), 9); err != nil || n != 1 || ps[0].Tool != "t" {
			t.Errorf("%d wait, %v", n, err)
		}
		if a, err := half.Admit(context.Background(), escalation("t", `{"a":1}`, egress)); err != nil || a.Pending == nil || !errors.Is(a.Refused, ErrUsed) {
			t.Errorf("%+v, %v", a, err)
		}
		// Lines that are torn, foreign or too long are named, and the rest goes on.
		other := open(t, k.place(t), &Options{Keys: ring(1)})
		torn := lines[1][:len(lines[1])-20]
		refusals(t, load(t, other, lines[0]+"\n  \nnonsense\n{\"seq\":1}\n"+lines[2]+lines[1]+torn), 2, 0,
			"4 not JSON", "5 foreign", "6 it is missing: the next one is 3", "8 torn")
		refusals(t, load(t, other, lines[2]+strings.Repeat("x", maxLine+1)+"\n"+lines[3]), 2, 0, "2 longer than")
		refusals(t, load(t, other, strings.Repeat("x", maxLine+100)), 0, 0, "1 longer than")
		refusals(t, load(t, other, "{\"fingerprint\":1}\n"), 0, 0, "1 record about a skill: /fingerprint: expected a string, got a number")
		foreign := newClock()
		foreign.add(time.Hour)
		refusals(t, load(t, other, strings.Join(strings.SplitAfter(export(t, history(t, "memory:", foreign)), "\n")[:2], "")), 0, 0,
			"1 entry 1 is another one", "2 entry 2 is another one")
		sound(t, other)
	})
}

// Entries whose hashes are right and that still cannot be kept are named, too.
func TestImportHostileEntries(t *testing.T) {
	everywhere(t, func(t *testing.T, k kind) {
		l := open(t, k.place(t), nil)
		line := func(change func(e *Entry)) string {
			e := Entry{Seq: 1, At: newClock().at, Kind: "k", Subject: "s", Body: json.RawMessage(`{"a":1}`)}
			change(&e)
			e.Hash = e.sum()
			body := string(e.Body)
			e.Body = json.RawMessage(`"BODY"`)
			text, err := compact(&e)
			if err != nil {
				t.Fatal(err)
			}
			return strings.Replace(string(text), `"BODY"`, body, 1) + "\n"
		}
		for name, text := range map[string]string{
			"kind with NUL":   line(func(e *Entry) { e.Kind = "k\x00" }),
			"ref with NUL":    line(func(e *Entry) { e.Ref = "\x00" }),
			"no subject":      line(func(e *Entry) { e.Subject = "" }),
			"blanks":          line(func(e *Entry) { e.Body = json.RawMessage(`{ "a":1}`) }),
			"no body":         strings.Replace(line(func(e *Entry) { e.Body = nil }), `"body":,`, "", 1),
			"filed, no end":   line(func(e *Entry) { e.Kind, e.Ref, e.Body = kindFiled, "r", json.RawMessage(`1`) }),
			"the year 9999":   line(func(e *Entry) { e.At = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC) }),
			"number 2":        line(func(e *Entry) { e.Seq = 2 }),
			"number -1":       line(func(e *Entry) { e.Seq = -1 }),
			"another before":  line(func(e *Entry) { e.Prev[0] = 1 }),
			"another hash":    strings.Replace(line(func(*Entry) {}), `"k"`, `"l"`, 1),
			"a member more":   strings.Replace(line(func(*Entry) {}), `{"seq"`, `{"x":1,"seq"`, 1),
			"an unknown kind": strings.Replace(line(func(*Entry) {}), `"seq":1`, `"seq":"1"`, 1),
		} {
			im := load(t, l, text+`{"fingerprint":"x"}`)
			if im.Added != 0 || im.Failed != 2 || im.Refused[0].Line != 1 {
				t.Errorf("%s: %+v", name, im)
			}
		}
		zone := line(func(e *Entry) { e.At = e.At.In(time.FixedZone("", 3600)) })
		refusals(t, load(t, l, zone+zone), 1, 1)
		if got := export(t, l); !strings.Contains(got, `"at":"2026-03-04T05:06:07Z"`) {
			t.Errorf("exported as %s", got)
		}
		// Two escalations with one name: the first one counts.
		two := open(t, k.place(t), nil)
		a, err := two.Admit(context.Background(), escalation("t", `{}`, egress))
		if err != nil {
			t.Fatal(err)
		}
		if err := two.Update(context.Background(), func(tx *Tx) error {
			_, err := tx.Append(Draft{Kind: kindFiled, Subject: "s", Ref: a.Pending.ID, Body: map[string]string{"expires_at": "2100-01-01T00:00:00Z"}})
			return err
		}); err != nil {
			t.Errorf("got %v", err)
		}
		if ps, n, err := two.Waiting(context.Background(), 9); err != nil || n != 1 || ps[0].Tool != "t" {
			t.Errorf("%d wait, %v", n, err)
		}
	})
}

func TestImportRecords(t *testing.T) {
	everywhere(t, func(t *testing.T, k kind) {
		ctx, c := context.Background(), newClock()
		l := open(t, k.place(t), &Options{Now: c.now})
		const old = `{"fingerprint":"skill_deploy:a:b:full_access","required_tier":"full_access","decision":"approved","reviewer":"eve","reason":"r","evidence":"e","decided_at":"2025-01-02T03:04:05.678+02:00"}`
		refusals(t, load(t, l, old+"\n"+old+"\n"), 1, 1)
		refusals(t, load(t, l, old), 0, 1)
		rec, ok, err := l.Last(ctx, "skill_deploy:a:b:full_access")
		if err != nil || !ok || rec.Reviewer != "eve" || !rec.DecidedAt.Equal(time.Date(2025, 1, 2, 1, 4, 5, 678e6, time.UTC)) || rec.Evidence != "e" {
			t.Errorf("got %+v, %v", rec, err)
		}
		es, err := l.Subject(ctx, rulingSubject("skill_deploy:a:b:full_access"))
		if err != nil || !strings.Contains(string(es[0].Body), `"imported_by":"importer"`) || !es[0].At.Equal(c.now()) {
			t.Errorf("got %s, %v", es[0].Body, err)
		}
		no := ruling1("a:b", "")
		no.Decision = 2
		if _, err := l.Record(ctx, "ann", no); err != nil {
			t.Fatal(err)
		}
		older := strings.Replace(old, "2025", "2026", 1)
		refusals(t, load(t, l, older), 0, 0, "1 older than what entry 2 says")
		if rec, _, _ := l.Last(ctx, no.Fingerprint); rec.Decision != no.Decision {
			t.Errorf("an old approval is back: %+v", rec)
		}
		for _, edit := range [][2]string{{`"decided_at":"2025-01-02T03:04:05.678+02:00"`, `"decided_at":"yesterday"`}, {`,"decided_at":"2025-01-02T03:04:05.678+02:00"`, ""},
			{`"required_tier":"full_access"`, `"required_tier":"read_only"`}, {`"approved"`, `"perhaps"`}, {`"eve"`, `""`}, {"skill_deploy", "deploy"}, {`{"`, `{"x":1,"`}} {
			im := load(t, l, strings.Replace(old, edit[0], edit[1], 1))
			if im.Failed != 1 || im.Added != 0 {
				t.Errorf("%v: %+v", edit, im)
			}
		}
		if _, err := l.Import(ctx, "", strings.NewReader(old)); err == nil {
			t.Error("nobody imports")
		}
		sound(t, l)
	})
}

func FuzzImport(f *testing.F) {
	text := ""
	{
		l := newLedger(newMemory(), &Options{Now: newClock().now})
		if _, err := l.Record(context.Background(), "a", ruling1("x", "")); err != nil {
			f.Fatal(err)
		}
		text = export(f, l)
	}
	f.Add(text)
	f.Add(text + text)
	f.Add(`{"fingerprint":"skill_deploy:x:full_access","required_tier":"full_access","decision":"approved","reviewer":"e","reason":"","decided_at":"2025-01-02T03:04:05Z"}`)
	f.Fuzz(func(t *testing.T, text string) {
		l := newLedger(newMemory(), &Options{Now: newClock().now})
		im := load(t, l, text)
		lines := int64(0)
		for line := range strings.SplitSeq(text, "\n") {
			if len(bytes.TrimSpace([]byte(line))) > 0 {
				lines++
			}
		}
		if im.Added+im.Present+im.Failed != lines {
			t.Errorf("%d lines, %+v", lines, im)
		}
		out := export(t, l)
		again := newLedger(newMemory(), nil)
		load(t, again, out)
		if export(t, again) != out {
			t.Errorf("not the same after a round trip: %s", out)
		}
		sound(t, l)
	})
}
