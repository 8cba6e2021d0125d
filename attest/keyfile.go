package attest

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/narwhal-fleet/narwhal/internal/atomicfile"
)

// OpenKeyFile loads a private key from path, which only its owner may read. When
// the file is missing it makes a new key there (mode 0600) and the public key
// beside it as path + ".pub". created says which happened. A file that others may
// read is refused.
func OpenKeyFile(path string, passphrase []byte) (s *Signer, created bool, err error) {
	info, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		s, err = makeKeyFile(path, passphrase)
		return s, err == nil, err
	}
	if err != nil {
		return nil, false, fmt.Errorf("open key: %w", err)
	}
	if !info.Mode().IsRegular() || info.Mode().Perm()&0o077 != 0 {
		return nil, false, fmt.Errorf("open key %s: it is not a regular file that only its owner may use (mode %v)", path, info.Mode())
	}
	text, err := readKey(path)
	if err != nil {
		return nil, false, fmt.Errorf("open key: %w", err)
	}
	s, err = LoadSigner(text, passphrase)
	if err != nil {
		return nil, false, fmt.Errorf("open key %s: %w", path, err)
	}
	return s, false, nil
}

// LoadPublicFile loads a public key from a file.
func LoadPublicFile(path string) (*Public, error) {
	text, err := readKey(path)
	if err != nil {
		return nil, fmt.Errorf("open key: %w", err)
	}
	p, err := LoadPublic(text)
	if err != nil {
		return nil, fmt.Errorf("open key %s: %w", path, err)
	}
	return p, nil
}

func readKey(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return io.ReadAll(io.LimitReader(f, MaxKey+1))
}

func makeKeyFile(path string, passphrase []byte) (*Signer, error) {
	private, public, err := GenerateKey(passphrase)
	if err != nil {
		return nil, err
	}
	s, err := LoadSigner(private, passphrase)
	if err != nil {
		return nil, err
	}
	if err := atomicfile.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("make key: %w", err)
	}
	// Created exclusively, so that two processes never end with two keys of one name.
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("make key: %w", err)
	}
	_, err = f.Write(private)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, errors.Join(fmt.Errorf("make key: %w", err), os.Remove(path))
	}
	if err := atomicfile.Write(path+".pub", public, 0o644); err != nil {
		return nil, fmt.Errorf("make key: %w", err)
	}
	return s, nil
}
