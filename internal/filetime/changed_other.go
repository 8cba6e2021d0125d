//go:build !linux

// Package filetime says when a file last changed.
//
// It promises the latest time that the system keeps of it, and refuses nothing: where the system
// keeps no other, that is the time of the last write, as its writer says.
package filetime

import (
	"io/fs"
	"time"
)

// Changed is when a file was last written, as its writer says.
func Changed(info fs.FileInfo) time.Time { return info.ModTime() }
