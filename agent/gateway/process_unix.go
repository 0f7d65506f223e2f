//go:build unix

package gateway

import (
	"os/exec"
	"syscall"
)

// ownGroup gives a server a process group, so that what it starts ends with it:
// npx, for one, is a parent that does not pass signals on. It also keeps Ctrl-C of
// a terminal from it, which is for this program to hear.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	endWithParent(cmd.SysProcAttr)
}

func terminate(cmd *exec.Cmd) error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }

func kill(cmd *exec.Cmd) error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
