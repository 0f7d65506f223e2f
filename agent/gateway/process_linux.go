package gateway

import (
	"os/exec"
	"runtime"
	"syscall"
)

// endWithThis ends a server when this program is killed, which leaves it no time to
// do so itself. A server's input ends then, too; but one that hangs does not notice.
// It is to be called by the goroutine that starts the server and waits for it: the
// system means the thread, not the process.
func endWithThis(cmd *exec.Cmd) {
	runtime.LockOSThread()
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
}
