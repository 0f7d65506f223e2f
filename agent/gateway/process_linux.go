package gateway

import "syscall"

// endWithParent ends a server whose gateway was killed and could not end it: one that
// hangs would not notice that its input has ended.
func endWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }
