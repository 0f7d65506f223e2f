package gateway

import (
	"os/exec"
	"runtime"
	"syscall"
)

// endWithThis has a server told to end when this program is killed, which leaves
// it no time to do so itself. A server's input ends then, too; but not every server
// listens for that. It is to be called by the goroutine that starts the server and
// waits for it: the system means the thread, not the process.
func endWithThis(cmd *exec.Cmd) {
	runtime.LockOSThread()
	cmd.SysProcAttr.Pdeathsig = syscall.SIGTERM
}
