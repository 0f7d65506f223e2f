package testpostgres

import "syscall"

// endWithTest ends the server with the test: one that crashes leaves nothing running.
func endWithTest(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGQUIT }
