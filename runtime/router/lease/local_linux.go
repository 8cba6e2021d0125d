package lease

import "syscall"

// localMagic are the numbers of statfs(2) of file systems whose locks one kernel keeps.
var localMagic = map[uint32]bool{
	0xef53:     true, // ext2, ext3, ext4
	0x58465342: true, // xfs
	0x9123683e: true, // btrfs
	0x2fc12fc1: true, // zfs
	0xf2f52010: true, // f2fs
	0xca451a4e: true, // bcachefs
	0x01021994: true, // tmpfs
	0x794c7630: true, // overlay
}

// isLocal reports whether the folder is on a file system known to be local.
func isLocal(dir string) bool {
	var s syscall.Statfs_t
	return syscall.Statfs(dir, &s) == nil && localMagic[uint32(s.Type)]
}
