package look

import (
	"io/fs"
	"syscall"
)

func printOf(info fs.FileInfo) print {
	p := print{Size: info.Size(), MTime: info.ModTime().UnixNano()}
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		p.Dev, p.Inode, p.CTime = s.Dev, s.Ino, s.Ctim.Nano()
	}
	return p
}
