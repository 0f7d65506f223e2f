//go:build unix && !linux

package testpostgres

import "syscall"

func endWithTest(*syscall.SysProcAttr) {}
