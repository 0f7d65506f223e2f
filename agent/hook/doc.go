// Package hook answers the hooks of coding agents with the gate's decisions.
//
// Most callers need one function, [Handler.Handle]: it takes what an agent writes
// to a hook's standard input and returns what the hook answers.
//
//	reply := handler.Handle(ctx, input, os.Getenv("CLAUDE_PROJECT_DIR"))
//	os.Stdout.Write(reply.Stdout)
//	os.Exit(reply.Exit)
//
// A [Server] answers many hooks from one process; package line is the light end
// of that, and package settings puts a hook into an agent's settings.
//
// # Caveats
//
// An agent lets a call run if its hook crashes, times out or exits with 1. So the
// command in its settings ends with "|| exit 2", and a hook has a deadline of its
// own below the agent's.
package hook
