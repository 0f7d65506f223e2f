package main

import (
	"bufio"
	"context"
	"os"
	"strings"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"
)

// asks tells whether a person sits in front of the command.
func asks(cmd *cobra.Command) bool {
	in, ok := cmd.InOrStdin().(*os.File)
	return ok && isatty.IsTerminal(in.Fd())
}

// agreed reads the answer to a question that was asked, and tells whether it is
// yes. What ends ctx, such as Ctrl-C, ends the wait for it.
func agreed(ctx context.Context, cmd *cobra.Command) (bool, error) {
	answers := make(chan string, 1)
	go func() { // a read cannot be interrupted
		line, _ := bufio.NewReader(cmd.InOrStdin()).ReadString('\n')
		answers <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case <-ctx.Done():
		return false, ctx.Err()
	case answer := <-answers:
		return answer == "y" || answer == "yes", nil
	}
}
