//go:build !linux

package gateway

import "os/exec"

func endWithThis(*exec.Cmd) {}
