//go:build !linux

package look

import (
	"io/fs"
	"syscall"
)

func printOf(info fs.FileInfo) print {
	p := print{Size: info.Size(), MTime: info.ModTime().UnixNano()}
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		p.Dev, p.Inode = uint64(s.Dev), s.Ino
	}
	return p
}
