//go:build unix && !linux

package gateway

import "syscall"

// endWithParent does nothing where the system has no such thing: there a server of a
// gateway that was killed ends because its input does.
func endWithParent(*syscall.SysProcAttr) {}
