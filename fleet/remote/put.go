package remote

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/pkg/sftp"
)

// Limits of an upload.
const (
	writesInFlight = 64
	// rewind is how much of an interrupted upload is sent again: writes may be missing in what was
	// in flight, 64 packets of 32 KiB, when the connection ended.
	rewind = 4 << 20
)

// File is one file to put.
type File struct {
	// Path is absolute on the host. Its folder exists unless Parents is set.
	Path string
	Mode fs.FileMode // permission bits
	// SHA256 of the content in hex; "" reads the source once more to find it.
	SHA256 string
	// Open returns the content from its beginning and its size in bytes. It may be called again.
	Open func() (io.ReadCloser, int64, error)
	// Parents makes missing folders with mode 0755.
	Parents bool
	// KeepMode leaves the mode of a file that is there with this digest.
	KeepMode bool
}

// Written is what a put did.
type Written struct {
	SHA256 string
	Size   int64
	// Sent are the bytes sent: 0 when the file was there, less than Size when an interrupted
	// upload was resumed.
	Sent int64
	// Skipped says that the host had the file with this digest; at most its mode was set.
	Skipped bool
	// Resumed is how many bytes of an earlier, interrupted upload were kept.
	Resumed int64
}

// Put puts a file under its name, complete and with its digest proven on the host, or not at all.
// It writes beside the target and renames over it. What it wrote is removed when it fails; when
// the connection is lost the part stays: the next put of the same content resumes it, and one of
// other content removes it.
// Errors: *NoSpaceError, *DigestError, *PolicyError, *CommandError, *LostError, *HopError,
// fs.ErrNotExist and fs.ErrPermission from the host, and the error of Open.
func (h *Host) Put(ctx context.Context, f File) (Written, error) {
	if !path.IsAbs(f.Path) || strings.HasSuffix(f.Path, "/") || strings.IndexByte(f.Path, 0) >= 0 {
		return Written{}, &CommandError{Host: h.id, Reason: fmt.Sprintf("%q is no absolute path of a file", f.Path)}
	}
	if err := f.digest(ctx); err != nil {
		return Written{}, fmt.Errorf("put %s: %w", printable(f.Path), err)
	}
	op := Operation{Kind: KindPut, Host: h.id, Path: f.Path, Mode: f.Mode.Perm(), SHA256: f.SHA256}
	if err := h.permit(op); err != nil {
		return Written{}, err
	}
	defer h.lockPath(f.Path)()
	started := h.opts.Now()
	w, err := h.put(ctx, f)
	h.trace(op, started, Outcome{Err: err, Bytes: w.Sent})
	return w, err
}

// digest fills in or checks the form of SHA256.
func (f *File) digest(ctx context.Context) error {
	if f.SHA256 != "" {
		f.SHA256 = strings.ToLower(f.SHA256)
		if raw, err := hex.DecodeString(f.SHA256); err != nil || len(raw) != sha256.Size {
			return fmt.Errorf("digest %q is no sha256 in hex", f.SHA256)
		}
		return nil
	}
	r, _, err := f.Open()
	if err != nil {
		return err
	}
	defer r.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, &stopReader{ctx: ctx, r: r}); err != nil {
		return err
	}
	f.SHA256 = hex.EncodeToString(sum.Sum(nil))
	return nil
}

func (h *Host) put(ctx context.Context, f File) (Written, error) {
	w := Written{SHA256: f.SHA256}
	src, size, err := f.Open()
	if err != nil {
		return w, fmt.Errorf("put %s: %w", printable(f.Path), err)
	}
	defer src.Close()
	w.Size = size
	var there bool
	err = h.withFiles(ctx, func(c *sftp.Client) error {
		if there, err = h.present(ctx, c, f, size); there {
			removeParts(c, f.Path)
		}
		return err
	})
	if err != nil || there {
		w.Skipped = there && err == nil
		return w, h.wrap("put", f.Path, err)
	}
	u := &upload{host: h, file: f, size: size, temp: partName(f)}
	err = h.withFiles(ctx, func(c *sftp.Client) error { return u.run(ctx, c, src) })
	w.Sent, w.Resumed = u.sent, u.resumed
	var full *NoSpaceError
	var digest *DigestError
	if errors.As(err, &full) || errors.As(err, &digest) {
		return w, err
	}
	return w, h.wrap("put", f.Path, err)
}

// present reports whether the host has the file as it should be, and sets its mode when only
// that differs.
func (h *Host) present(ctx context.Context, c *sftp.Client, f File, size int64) (bool, error) {
	info, err := c.Lstat(f.Path)
	switch {
	case missing(err):
		return false, nil
	case err != nil:
		return false, err
	case info.IsDir():
		return false, fmt.Errorf("a folder has this name")
	case !info.Mode().IsRegular() || info.Size() != size:
		return false, nil
	}
	got, err := h.digest(ctx, f.Path)
	if err != nil || got != f.SHA256 {
		// A file that cannot be read is replaced.
		return false, h.ended(ctx)
	}
	if !f.KeepMode && info.Mode().Perm() != f.Mode.Perm() {
		return true, c.Chmod(f.Path, f.Mode.Perm())
	}
	return true, nil
}

// upload is the writing of one file.
type upload struct {
	host    *Host
	file    File
	size    int64
	temp    string
	sent    int64
	resumed int64
}

func (u *upload) run(ctx context.Context, c *sftp.Client, src io.Reader) (err error) {
	if u.file.Parents {
		if err := c.MkdirAll(path.Dir(u.file.Path)); err != nil {
			return err
		}
	}
	defer func() {
		if err != nil && u.host.Err() == nil {
			_ = c.Remove(u.temp)
		}
	}()
	from := u.resumeAt(c)
	if err := u.space(c, u.size-from, nil); err != nil {
		return err
	}
	if err := u.write(ctx, c, src, from); err != nil {
		return err
	}
	got, err := u.host.digest(ctx, u.temp)
	if err != nil {
		return err
	}
	if got != u.file.SHA256 && u.resumed > 0 {
		return u.restart(ctx, c)
	}
	if got != u.file.SHA256 {
		return &DigestError{Host: u.host.id, Path: u.file.Path, Want: u.file.SHA256, Got: got}
	}
	return u.place(c)
}

// restart sends everything after a resumed upload turned out wrong.
func (u *upload) restart(ctx context.Context, c *sftp.Client) error {
	if err := c.Remove(u.temp); err != nil {
		return err
	}
	u.resumed = 0
	src, size, err := u.file.Open()
	if err != nil {
		return err
	}
	defer src.Close()
	u.size = size
	if err := u.write(ctx, c, src, 0); err != nil {
		return err
	}
	got, err := u.host.digest(ctx, u.temp)
	if err != nil {
		return err
	}
	if got != u.file.SHA256 {
		return &DigestError{Host: u.host.id, Path: u.file.Path, Want: u.file.SHA256, Got: got}
	}
	return u.place(c)
}

// resumeAt returns how much of an earlier part to keep.
func (u *upload) resumeAt(c *sftp.Client) int64 {
	info, err := c.Lstat(u.temp)
	if err != nil {
		return 0
	}
	if !info.Mode().IsRegular() || info.Size() > u.size {
		_ = c.Remove(u.temp)
		return 0
	}
	return max(0, info.Size()-rewind)
}

// write sends the source from an offset, closes the file and leaves it on disk for its owner alone to read.
func (u *upload) write(ctx context.Context, c *sftp.Client, src io.Reader, from int64) error {
	dst, err := c.OpenFile(u.temp, os.O_WRONLY|os.O_CREATE)
	if err != nil {
		return err
	}
	defer dst.Close()
	if err := dst.Chmod(0o600); err != nil {
		return err
	}
	sum := sha256.New()
	r := &stopReader{ctx: ctx, r: src, sum: sum}
	if _, err := io.CopyN(io.Discard, r, from); err != nil {
		return fmt.Errorf("skip what was sent before: %w", err)
	}
	if _, err := dst.Seek(from, io.SeekStart); err != nil {
		return err
	}
	u.resumed = from
	_, err = dst.ReadFromWithConcurrency(r, writesInFlight)
	u.sent += r.sent - from
	if err != nil {
		return u.failed(ctx, c, dst, err)
	}
	if got := hex.EncodeToString(sum.Sum(nil)); r.sent != u.size || got != u.file.SHA256 {
		return &DigestError{Path: u.file.Path, Want: u.file.SHA256, Got: got}
	}
	if err := flush(dst); err != nil {
		return u.failed(ctx, c, dst, err)
	}
	return dst.Close()
}

// place gives the part, whose digest the host has proven, its mode and its name: what the
// host does not prove is never executable.
func (u *upload) place(c *sftp.Client) error {
	if err := c.Chmod(u.temp, u.file.Mode.Perm()); err != nil {
		return err
	}
	if err := c.PosixRename(u.temp, u.file.Path); err != nil {
		return err
	}
	removeParts(c, u.file.Path)
	return nil
}

// flush puts the file on the disk where the server can; rename alone orders nothing.
func flush(f *sftp.File) error {
	err := f.Sync()
	var status *sftp.StatusError
	if errors.As(err, &status) && status.FxCode() == sftp.ErrSSHFxOpUnsupported {
		return nil
	}
	return err
}

// failed finds out whether a write failed for want of space: the protocol has no code for it.
func (u *upload) failed(ctx context.Context, c *sftp.Client, dst *sftp.File, err error) error {
	var status *sftp.StatusError
	if ctx.Err() != nil || !errors.As(err, &status) {
		return err
	}
	// The file's offset is the first byte that was not written.
	at, _ := dst.Seek(0, io.SeekCurrent)
	if full := u.space(c, max(u.size-at, 1), err); full != nil {
		return full
	}
	return err
}

// space returns a *NoSpaceError when the host says that need bytes do not fit. A host that does
// not say passes.
func (u *upload) space(c *sftp.Client, need int64, cause error) error {
	if _, ok := c.HasExtension("statvfs@openssh.com"); !ok {
		return nil
	}
	vfs, err := c.StatVFS(path.Dir(u.file.Path))
	if err != nil || vfs.Blocks == 0 { // pseudo file systems count no blocks
		return nil
	}
	free := int64(min(vfs.Frsize*vfs.Bavail, 1<<62))
	if free >= need {
		return nil
	}
	return &NoSpaceError{Host: u.host.id, Path: u.file.Path, Need: need, Free: free, Err: cause}
}
