package hook

import (
	"fmt"
	"io/fs"
	"syscall"
)

// identity tells files apart.
func identity(info fs.FileInfo) string {
	if info == nil {
		return "missing"
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return "unknown"
	}
	return fmt.Sprintf("%d:%d", st.Dev, st.Ino)
}

// changed is when a file last changed in any way: a time that nobody can set back.
func changed(info fs.FileInfo) int64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Ctim.Nano()
	}
	return 0
}
