package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path"

	"github.com/pkg/sftp"
)

// Get returns the bytes of a file, at most max of them: a larger file is a *TooLargeError and
// none of it is returned. The bytes are untrusted. A path below /proc, whose size reads as 0, is
// read like any other.
func (h *Host) Get(ctx context.Context, name string, limit int64) ([]byte, error) {
	if !path.IsAbs(name) || limit < 0 {
		return nil, &CommandError{Host: h.id, Reason: fmt.Sprintf("%q is no absolute path, or the limit %d is negative", name, limit)}
	}
	op := Operation{Kind: KindGet, Host: h.id, Path: name, Max: limit}
	if err := h.permit(op); err != nil {
		return nil, err
	}
	started := h.opts.Now()
	var out []byte
	err := h.withFiles(ctx, func(c *sftp.Client) (err error) {
		out, err = h.get(ctx, c, name, limit)
		return err
	})
	var large *TooLargeError
	if !errors.As(err, &large) {
		err = h.wrap("get", name, err)
	}
	h.trace(op, started, Outcome{Err: err, Bytes: int64(len(out))})
	return out, err
}

func (h *Host) get(ctx context.Context, c *sftp.Client, name string, limit int64) ([]byte, error) {
	f, err := c.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	large := &TooLargeError{Host: h.id, Path: name, Max: limit}
	if info, err := f.Stat(); err == nil && info.Size() > limit {
		return nil, large
	}
	var out bytes.Buffer
	if _, err := io.Copy(&out, io.LimitReader(&stopReader{ctx: ctx, r: f}, limit+1)); err != nil {
		return nil, err
	}
	if int64(out.Len()) > limit {
		return nil, large
	}
	return out.Bytes(), nil
}
