package record

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/narwhal-fleet/narwhal/internal/atomicfile"
)

// DigestError says that an object's bytes are not the ones its name promises.
type DigestError struct {
	SHA256 string
	Got    string // digest of what is there, "" when only the length differs
	Bytes  int64
}

func (e *DigestError) Error() string {
	if e.Got == "" {
		return fmt.Sprintf("read object %s: it has %d bytes, not the recorded length", e.SHA256, e.Bytes)
	}
	return fmt.Sprintf("read object %s: its bytes have digest %s", e.SHA256, e.Got)
}

// Store keeps bytes under their digest and waits for the disk. Storing the same
// bytes again is cheap. Above MaxObject it returns ErrTooLarge.
func (r *Run) Store(media string, b []byte) (Ref, error) { return storeObject(r.dir, media, b) }

// Load returns the bytes of a reference. Errors: *DigestError, os.ErrNotExist.
func (r *Run) Load(ref Ref) ([]byte, error) { return loadObject(r.dir, ref) }

func storeObject(dir, media string, b []byte) (Ref, error) {
	if len(b) > MaxObject {
		return Ref{}, fmt.Errorf("store object: %d bytes, limit %d: %w", len(b), MaxObject, ErrTooLarge)
	}
	ref := Ref{SHA256: digestOf(b), Media: media, Bytes: int64(len(b))}
	if digest, n, err := hashFile(objectPath(dir, ref.SHA256), MaxObject); err == nil && digest == ref.SHA256 && n == ref.Bytes {
		return ref, nil
	}
	if err := atomicfile.Write(objectPath(dir, ref.SHA256), b, 0o600); err != nil {
		return Ref{}, fmt.Errorf("store object: %w", err)
	}
	return ref, nil
}

func loadObject(dir string, ref Ref) ([]byte, error) {
	if err := ref.check(); err != nil {
		return nil, fmt.Errorf("load object: %w", err)
	}
	f, size, err := openRegular(objectPath(dir, ref.SHA256))
	if err != nil {
		return nil, fmt.Errorf("load object: %w", err)
	}
	defer func() { _ = f.Close() }()
	if size != ref.Bytes {
		return nil, &DigestError{SHA256: ref.SHA256, Bytes: size}
	}
	b, err := io.ReadAll(io.LimitReader(f, ref.Bytes+1))
	if err != nil {
		return nil, fmt.Errorf("load object %s: %w", ref.SHA256, err)
	}
	if got := digestOf(b); got != ref.SHA256 || int64(len(b)) != ref.Bytes {
		return nil, &DigestError{SHA256: ref.SHA256, Got: got, Bytes: int64(len(b))}
	}
	return b, nil
}

func objectPath(dir, digest string) string { return filepath.Join(dir, ObjectDir, digest) }

// hashFile returns the digest and length of a regular file of at most limit bytes.
func hashFile(path string, limit int64) (digest string, n int64, err error) {
	f, size, err := openRegular(path)
	if err != nil {
		return "", 0, err
	}
	defer func() { _ = f.Close() }()
	if size > limit {
		return "", size, fmt.Errorf("read %s: %d bytes, limit %d: %w", filepath.Base(path), size, limit, ErrTooLarge)
	}
	h := sha256.New()
	n, err = io.Copy(h, io.LimitReader(f, limit))
	if err != nil {
		return "", n, fmt.Errorf("read %s: %w", filepath.Base(path), err)
	}
	return hex.EncodeToString(h.Sum(nil)), n, nil
}

// readBounded returns the bytes of a regular file of at most limit bytes.
func readBounded(path string, limit int64) ([]byte, error) {
	f, size, err := openRegular(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	if size > limit {
		return nil, fmt.Errorf("read %s: %d bytes, limit %d: %w", filepath.Base(path), size, limit, ErrTooLarge)
	}
	return io.ReadAll(io.LimitReader(f, limit))
}

// missing reports whether a path does not exist.
func missing(path string) bool {
	_, err := os.Lstat(path)
	return errors.Is(err, os.ErrNotExist)
}
