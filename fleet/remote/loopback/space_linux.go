package loopback

import (
	"syscall"

	"github.com/pkg/sftp"
)

// StatVFS tells the space of a file system, the simulated limit included.
func (h *files) StatVFS(r *sftp.Request) (*sftp.StatVFS, error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(r.Filepath, &st); err != nil {
		return nil, err
	}
	v := &sftp.StatVFS{
		Bsize: uint64(st.Bsize), Frsize: uint64(st.Frsize), Blocks: st.Blocks, Bfree: st.Bfree, Bavail: st.Bavail,
		Files: st.Files, Ffree: st.Ffree, Favail: st.Ffree, Namemax: uint64(st.Namelen),
	}
	if left := h.server.faults.space.Load(); left >= 0 && v.Frsize > 0 {
		v.Bavail = min(v.Bavail, uint64(left)/v.Frsize)
		v.Bfree = min(v.Bfree, v.Bavail)
	}
	return v, nil
}
