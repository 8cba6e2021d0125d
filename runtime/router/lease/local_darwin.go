package lease

import "syscall"

const mntLocal = 0x1000 // MNT_LOCAL of sys/mount.h

// isLocal reports whether the folder is on a file system that the system marks local.
func isLocal(dir string) bool {
	var s syscall.Statfs_t
	return syscall.Statfs(dir, &s) == nil && s.Flags&mntLocal != 0
}
