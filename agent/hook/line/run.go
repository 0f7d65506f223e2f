package line

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"
)

// Run is a whole hook: it reads what the agent wrote from in, has it answered by
// opa-gate hook with args, writes the answer to out and problems to errors, and
// returns the exit code. Program is the path of opa-gate.
//
// It calls exit, and does not return, if the time is over: what an agent does
// with a hook that hangs is to let the call run.
func Run(program string, args []string, in io.Reader, out, problems io.Writer, exit func(int)) (code int) {
	var once sync.Once
	end := func(r Reply) int {
		code := exitBlock
		once.Do(func() { code = write(r, out, problems) })
		return code
	}
	defer func() {
		if p := recover(); p != nil {
			code = end(block(fmt.Sprintf("the hook failed: %v", p)))
		}
	}()
	deadline, shared := read(args)
	start := time.Now()
	watch := time.AfterFunc(deadline, func() {
		late := block(fmt.Sprintf("nothing was decided within %v; make the call again, or give --deadline more time", deadline))
		exit(InTime(func() int { return end(late) })) // an answer on its way may be stuck, and holds once
	})
	defer watch.Stop()
	input, err := io.ReadAll(io.LimitReader(in, MaxInput))
	if err != nil {
		return end(block("the hook's input cannot be read: " + err.Error()))
	}
	q := Request{Project: os.Getenv("CLAUDE_PROJECT_DIR"), Input: input}
	if shared {
		early := max(deadline-reserve, deadline/2)
		if r, err := resident(program, args, q, start.Add(early)); err == nil {
			return end(r)
		}
	}
	ctx, cancel := context.WithDeadline(context.Background(), start.Add(deadline))
	defer cancel()
	return end(alone(ctx, program, args, q))
}

// unread is how long nobody may read what a hook writes.
const unread = time.Second

// InTime returns the exit code of say, which writes an answer, or the code that
// refuses the call if nobody reads what it writes: the reason is lost then, but
// a hook that waited for its reader would let the call run.
func InTime(say func() int) int {
	said := make(chan int, 1)
	go func() { said <- say() }()
	select {
	case code := <-said:
		return code
	case <-time.After(unread):
		return exitBlock
	}
}

// alone runs the whole gate for one call.
func alone(ctx context.Context, program string, args []string, q Request) Reply {
	cmd := exec.CommandContext(ctx, program, append([]string{"hook"}, args...)...)
	cmd.Stdin = bytes.NewReader(q.Input)
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	err := cmd.Run()
	var ended *exec.ExitError
	if err != nil && !errors.As(err, &ended) {
		return block(fmt.Sprintf("%s cannot be run: %v; install opa-gate again", program, err))
	}
	r := Reply{Stdout: out.Bytes(), Stderr: problems.Bytes(), Exit: cmd.ProcessState.ExitCode()}
	if !r.sound() {
		if r.Exit == exitBlock {
			r.Stdout = nil
			if len(bytes.TrimSpace(r.Stderr)) == 0 {
				return block(program + " hook refused the call and did not say why")
			}
			return r
		}
		return block(fmt.Sprintf("%s hook gave no answer (%v): %s", program, cmd.ProcessState, cutLine(r.Stderr)))
	}
	return r
}

func cutLine(text []byte) []byte {
	text, _, _ = bytes.Cut(bytes.TrimSpace(text), []byte("\n"))
	return text[:min(len(text), 500)]
}

func block(why string) Reply {
	return Reply{Stderr: []byte("opa-gate: " + why + "\n"), Exit: exitBlock}
}

// write writes the reply, and returns the exit code: an answer that could not be
// written is none.
func write(r Reply, out, problems io.Writer) int {
	if !r.sound() {
		r = block("there is no answer")
	}
	if r.Exit == exitDone && !Heard(out) {
		r = block("standard output leads nowhere, so that no answer would be read")
	}
	_, _ = problems.Write(r.Stderr) // the exit code says what counts
	if _, err := out.Write(r.Stdout); err != nil {
		_, _ = fmt.Fprintf(problems, "opa-gate: the answer cannot be written: %v\n", err)
		return exitBlock
	}
	return r.Exit
}

// Beside returns the path of the program with that name in the folder of the one
// that runs.
func Beside(name string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	if self, err = filepath.EvalSymlinks(self); err != nil {
		return "", err
	}
	return filepath.Join(filepath.Dir(self), name), nil
}

// Heard reports whether somebody can read what is written to out. A program that
// is started without standard output gets one that swallows everything.
func Heard(out io.Writer) bool {
	f, ok := out.(*os.File)
	if !ok {
		return true
	}
	info, err := f.Stat()
	if err != nil {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err != nil || !os.SameFile(info, null)
}
