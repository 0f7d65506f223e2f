//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// faultyDisk fills the disk of the ledger in the middle of a clean conversation, under
// a resident gate that runs. That content came in could not be remembered.
func faultyDisk(t *testing.T, a *fakeAgent, resident bool) {
	a.killResidents()
	a.moved("state", "", func() {
		if err := os.Mkdir(a.path("state"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Mount("tmpfs", a.path("state"), "tmpfs", 0, "size=1m"); err != nil {
			t.Logf("SKIP a full disk: nothing can be mounted here: %v", err)
			return
		}
		defer func() {
			a.killResidents()
			_ = syscall.Unmount(a.path("state"), syscall.MNT_DETACH)
		}()
		a.hook("", map[string]any{"hook_event_name": "SessionStart", "source": "startup"})
		if runs, out := a.call("", "TaskList"); !runs {
			t.Fatalf("the disk has room, and a call that is allowed does not run: %s", out)
		}
		running := a.residents()
		if (len(running) > 0) != resident {
			t.Fatalf("resident gates: %v", running)
		}
		filler := a.path("state/filler")
		if err := os.WriteFile(filler, make([]byte, 2<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("the disk takes everything: %v", err)
		}
		// The log of the database may have some room of its own. Each of these calls
		// would be the first of its conversation to bring content in.
		refused := 0
		for n := range 200 {
			session := fmt.Sprint("full-", n)
			for _, event := range []map[string]any{
				{"hook_event_name": "SessionStart", "source": "startup"},
				{"hook_event_name": "PreToolUse", "tool_name": "WebFetch", "tool_use_id": "x", "tool_input": map[string]any{}},
			} {
				event["session_id"], event["cwd"] = session, a.dir
				text, err := json.Marshal(event)
				if err != nil {
					t.Fatal(err)
				}
				runs, out := a.raw("", text)
				if event["tool_name"] != nil && !runs {
					refused++
					if !strings.Contains(out, "disk may be full") {
						t.Errorf("it is not told why: %s", out)
					}
				}
			}
			if refused == 3 {
				break
			}
		}
		if refused != 3 {
			t.Fatalf("%d fetches were refused", refused)
		}
		if runs, out := a.call("", "WebFetch"); runs {
			t.Errorf("the disk is full, and a call was made that could not be remembered: %s", out)
		}
		a.neverRuns("the disk is full", "")
		if now := a.residents(); resident && (len(now) != 1 || now[0] != running[0]) {
			t.Errorf("resident gates were %v, are %v", running, now)
		}
		if err := os.Remove(filler); err != nil {
			t.Fatal(err)
		}
		if runs, out := a.call("", "WebFetch"); !runs {
			t.Errorf("there is room again, and a call that is allowed does not run: %s", out)
		}
		a.neverRuns("content came in after the disk was full", "")
	})
}

// faultyReader does not read what the hook writes, into pipes that are full: the
// hook ends and refuses, long before an agent gives it up and lets the call run.
func faultyReader(t *testing.T, a *fakeAgent) {
	text, err := json.Marshal(map[string]any{"hook_event_name": "PreToolUse", "session_id": "s", "cwd": a.dir, "tool_name": "TaskList", "tool_use_id": "x", "tool_input": map[string]any{}})
	if err != nil {
		t.Fatal(err)
	}
	for what, input := range map[string][]byte{"an answer": text, "a refusal": []byte("{")} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := w.SetWriteDeadline(time.Now().Add(time.Second)); err != nil {
			t.Fatal(err)
		}
		for err == nil { // until it is full
			_, err = w.Write([]byte("x"))
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		cmd := exec.CommandContext(ctx, "sh", "-c", a.command)
		cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = a.env(), bytes.NewReader(input), w, w // Fd makes it a blocking one
		cmd.WaitDelay = time.Second
		err = cmd.Run()
		cancel()
		if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != 2 {
			t.Errorf("nobody reads %s: %v", what, err)
		}
		_ = errors.Join(r.Close(), w.Close())
	}
}
