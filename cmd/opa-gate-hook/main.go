// Command opa-gate-hook is opa-gate hook for agents that call it before each
// tool call: it starts in a millisecond, asks a resident gate, which it starts
// if there is none, and runs the opa-gate beside it where that does not work.
//
// Its flags are those of opa-gate hook. It exits with 0 when it has answered and
// with 2 when it has not, which refuses the call.
package main

import (
	"fmt"
	"os"

	"github.com/opa-gate/opa-gate/agent/hook/line"
)

func main() {
	program, err := line.Beside("opa-gate")
	if err != nil {
		_, _ = fmt.Fprintf(os.Stderr, "opa-gate: the folder of opa-gate-hook cannot be found: %v; install opa-gate again\n", err)
		os.Exit(2)
	}
	os.Exit(line.Run(program, os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Exit))
}
