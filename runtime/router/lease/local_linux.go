package lease

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

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

// beaconName is an abstract socket's, of the lease at a path: its folder and its name there.
func beaconName(path string) (string, error) {
	var s syscall.Stat_t
	if err := syscall.Stat(filepath.Dir(path), &s); err != nil {
		return "", err
	}
	sum := sha256.Sum256(fmt.Append(nil, s.Dev, " ", s.Ino, " ", filepath.Base(path)))
	return fmt.Sprintf("@narwhal-lease-%x", sum[:16]), nil
}

// bindBeacon binds the socket's name, which the kernel frees when its last descriptor closes.
func bindBeacon(path string) (*os.File, error) {
	name, err := beaconName(path)
	if err != nil {
		return nil, err
	}
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_DGRAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if err := syscall.Bind(fd, &syscall.SockaddrUnix{Name: name}); err != nil {
		_ = syscall.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// lightBeacon shows that a holder of the lease at a path lives, as long as it keeps the result;
// nil where it cannot.
func lightBeacon(path string) *os.File {
	f, err := bindBeacon(path)
	if err != nil {
		return nil
	}
	return f
}

// beaconIsLit reports whether a process of this network namespace says so of itself.
func beaconIsLit(path string) bool {
	f, err := bindBeacon(path)
	if err == nil {
		_ = f.Close()
	}
	return errors.Is(err, syscall.EADDRINUSE)
}
