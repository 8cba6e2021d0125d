// Package filetime says when a file last changed.
//
// It promises the latest time that the system keeps of it, and refuses nothing: where the system
// keeps no other, that is the time of the last write, as its writer says.
package filetime

import (
	"io/fs"
	"syscall"
	"time"
)

// Changed is when a file's content, name or attributes last changed. No program can set it back,
// as it can the time of the last write.
func Changed(info fs.FileInfo) time.Time {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return time.Unix(s.Ctim.Unix())
	}
	return info.ModTime()
}
