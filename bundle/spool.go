package bundle

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
)

var errFull = errors.New("the bundle has reached its size limit")

// spool keeps redacted files until the manifest, which precedes them, is known. Its file
// has no name.
type spool struct {
	mu   sync.Mutex
	file *os.File
	size int64
}

func newSpool() (*spool, error) {
	f, err := os.CreateTemp("", "narwhal-bundle-")
	if err != nil {
		return nil, fmt.Errorf("open temporary file: %w", err)
	}
	if err := os.Remove(f.Name()); err != nil {
		return nil, errors.Join(fmt.Errorf("open temporary file: %w", err), f.Close())
	}
	return &spool{file: f}, nil
}

// put appends bytes and returns where they lie.
func (s *spool) put(b []byte) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.size+int64(len(b)) > maxTotal {
		return 0, errFull
	}
	at := s.size
	if _, err := s.file.WriteAt(b, at); err != nil {
		return 0, fmt.Errorf("write temporary file: %w", err)
	}
	s.size += int64(len(b))
	return at, nil
}

func (s *spool) open(at, n int64) io.Reader { return io.NewSectionReader(s.file, at, n) }
func (s *spool) Close() error               { return s.file.Close() }

// digestOf is the lower-case hex SHA-256.
func digestOf(b []byte) string {
	d := sha256.Sum256(b)
	return hex.EncodeToString(d[:])
}
