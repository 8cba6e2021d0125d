package remote

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"time"
)

// digestLimit bounds the digest of one file on a host: a large checkpoint file on a slow disk.
const digestLimit = 30 * time.Minute

// noDigester is the exit code of digestScript on a host that has no command for it.
const noDigester = 69

// digestScript prints the SHA-256 of the file named by its argument, read as standard input so
// that no command quotes the name.
const digestScript = `if command -v sha256sum >/dev/null 2>&1; then exec sha256sum <"$1"
elif command -v shasum >/dev/null 2>&1; then exec shasum -a 256 <"$1"
elif command -v openssl >/dev/null 2>&1; then exec openssl dgst -sha256 -r <"$1"
fi
exit 69`

// digest returns the SHA-256 of a file on the host, in hex: by a command there, or by reading the
// file back where it has none.
func (h *Host) digest(ctx context.Context, path string) (string, error) {
	res, err := h.run(ctx, Command{Argv: []string{"sh", "-c", digestScript, "sh", path}, Limit: digestLimit, MaxOutput: 4096})
	var exit *ExitError
	if errors.As(err, &exit) && exit.Code == noDigester {
		return h.readBack(ctx, path)
	}
	if err != nil {
		return "", err
	}
	return parseDigest(res.Stdout)
}

// errDigest is a digest command that prints something else.
var errDigest = errors.New("read digest: the host's command printed none")

// parseDigest reads 64 hex digits that end at white space or the end.
func parseDigest(out []byte) (string, error) {
	const n = 2 * sha256.Size
	if len(out) < n || (len(out) > n && out[n] != ' ' && out[n] != '\n' && out[n] != '\t') {
		return "", errDigest
	}
	raw, err := hex.DecodeString(string(out[:n]))
	if err != nil {
		return "", errDigest
	}
	return hex.EncodeToString(raw), nil
}

func (h *Host) readBack(ctx context.Context, path string) (string, error) {
	client, err := h.sftp(ctx)
	if err != nil {
		return "", err
	}
	f, err := client.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := f.WriteTo(&stopWriter{ctx, sum}); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// stopWriter ends a copy when its context does.
type stopWriter struct {
	ctx context.Context
	w   io.Writer
}

func (s *stopWriter) Write(b []byte) (int, error) {
	if err := context.Cause(s.ctx); err != nil {
		return 0, err
	}
	return s.w.Write(b)
}

// stopReader ends a copy when its context does, and hashes what passes.
type stopReader struct {
	ctx  context.Context
	r    io.Reader
	sum  io.Writer
	sent int64
}

func (s *stopReader) Read(b []byte) (int, error) {
	if err := context.Cause(s.ctx); err != nil {
		return 0, err
	}
	n, err := s.r.Read(b)
	if s.sum != nil {
		_, _ = s.sum.Write(b[:n])
	}
	s.sent += int64(n)
	return n, err
}
