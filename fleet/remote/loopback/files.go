package loopback

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"github.com/pkg/sftp"
)

// files serves SFTP on this machine's own file system: absolute paths as they are,
// others below the server's root.
type files struct{ server *Server }

// Fileread opens a file for reading.
func (h *files) Fileread(r *sftp.Request) (io.ReaderAt, error) { return os.Open(r.Filepath) }

// Filewrite opens a file for writing.
func (h *files) Filewrite(r *sftp.Request) (io.WriterAt, error) { return h.open(r, os.O_WRONLY) }

// OpenFile opens a file for both.
func (h *files) OpenFile(r *sftp.Request) (sftp.WriterAtReaderAt, error) { return h.open(r, os.O_RDWR) }

func (h *files) open(r *sftp.Request, flags int) (*quotaFile, error) {
	p := r.Pflags()
	if p.Append {
		return nil, sftp.ErrSSHFxOpUnsupported
	}
	for flag, on := range map[int]bool{os.O_CREATE: p.Creat, os.O_TRUNC: p.Trunc, os.O_EXCL: p.Excl} {
		if on {
			flags |= flag
		}
	}
	h.server.see("write", r.Filepath, "")
	f, err := os.OpenFile(r.Filepath, flags, 0o644)
	if err != nil {
		return nil, err
	}
	return &quotaFile{f, &h.server.faults}, nil
}

// quotaFile writes as far as the simulated space allows.
type quotaFile struct {
	*os.File
	faults *faults
}

func (f *quotaFile) WriteAt(b []byte, off int64) (int, error) {
	if !f.faults.take(int64(len(b))) {
		return 0, syscall.ENOSPC
	}
	return f.File.WriteAt(b, off)
}

// Filecmd changes names and attributes.
func (h *files) Filecmd(r *sftp.Request) error {
	h.server.see(r.Method, r.Filepath, r.Target)
	switch r.Method {
	case "Setstat":
		return setstat(r)
	case "Rename":
		if _, err := os.Lstat(r.Target); err == nil {
			return os.ErrExist
		}
		return os.Rename(r.Filepath, r.Target)
	case "Rmdir":
		return syscall.Rmdir(r.Filepath)
	case "Remove":
		return syscall.Unlink(r.Filepath)
	case "Mkdir":
		return os.Mkdir(r.Filepath, 0o755)
	case "Link":
		return os.Link(r.Filepath, r.Target)
	case "Symlink":
		return os.Symlink(r.Filepath, r.Target)
	}
	return sftp.ErrSSHFxOpUnsupported
}

// PosixRename replaces the target.
func (h *files) PosixRename(r *sftp.Request) error {
	h.server.see("Rename", r.Filepath, r.Target)
	return os.Rename(r.Filepath, r.Target)
}

func setstat(r *sftp.Request) error {
	flags, attrs := r.AttrFlags(), r.Attributes()
	var errs []error
	if flags.Size {
		errs = append(errs, os.Truncate(r.Filepath, int64(attrs.Size)))
	}
	if flags.Permissions {
		errs = append(errs, os.Chmod(r.Filepath, attrs.FileMode()))
	}
	if flags.Acmodtime {
		errs = append(errs, os.Chtimes(r.Filepath, attrs.AccessTime(), attrs.ModTime()))
	}
	if flags.UidGid {
		errs = append(errs, os.Chown(r.Filepath, int(attrs.UID), int(attrs.GID)))
	}
	return errors.Join(errs...)
}

// Filelist lists a folder or describes one path.
func (h *files) Filelist(r *sftp.Request) (sftp.ListerAt, error) {
	switch r.Method {
	case "List":
		entries, err := os.ReadDir(r.Filepath)
		if err != nil {
			return nil, err
		}
		infos := make(listing, 0, len(entries))
		for _, e := range entries {
			if info, err := e.Info(); err == nil {
				infos = append(infos, info)
			}
		}
		return infos, nil
	case "Stat":
		info, err := os.Stat(r.Filepath)
		return listing{info}, err
	}
	return nil, sftp.ErrSSHFxOpUnsupported
}

// Lstat describes a path without following a last link.
func (h *files) Lstat(r *sftp.Request) (sftp.ListerAt, error) {
	info, err := os.Lstat(r.Filepath)
	return listing{info}, err
}

// Readlink reads a link.
func (h *files) Readlink(path string) (string, error) { return os.Readlink(path) }

// RealPath makes a path absolute.
func (h *files) RealPath(path string) (string, error) {
	if filepath.IsAbs(path) {
		return filepath.Clean(path), nil
	}
	return filepath.Join(h.server.cfg.Root, path), nil
}

type listing []os.FileInfo

// ListAt copies infos from offset.
func (l listing) ListAt(to []os.FileInfo, offset int64) (int, error) {
	if offset >= int64(len(l)) {
		return 0, io.EOF
	}
	n := copy(to, l[offset:])
	if int(offset)+n >= len(l) {
		return n, io.EOF
	}
	return n, nil
}
