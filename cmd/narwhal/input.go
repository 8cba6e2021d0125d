package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/narwhal-fleet/narwhal/attest"
	"github.com/narwhal-fleet/narwhal/internal/problem"
)

// Bounds of what is read besides fleet files.
const (
	maxSecretFile = 64 << 10
	secretWithin  = 5 * time.Second
)

// input reads a file that the command line names, or standard input for "-". A pipe or
// terminal that gives nothing ends with ctx.
func (a *app) input(ctx context.Context, path, doing string) ([]byte, error) {
	b, err := within(ctx, func() ([]byte, error) { return a.read(path) })
	return b, unreadable(ctx, doing, err)
}

// unreadable is the problem of an input; the end of ctx has its own.
func unreadable(ctx context.Context, doing string, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return problem.Wrap(problem.Invalid, "file_unreadable", doing, err, "check the path")
}

// within waits for do or the end of ctx, whichever comes first. Opening and reading a pipe
// cannot be interrupted: what was given up waits on until the process ends.
func within[T any](ctx context.Context, do func() (T, error)) (T, error) {
	type answer struct {
		v   T
		err error
	}
	done := make(chan answer, 1)
	go func() {
		v, err := do()
		done <- answer{v, err}
	}()
	select {
	case got := <-done:
		return got.v, got.err
	case <-ctx.Done():
		var none T
		return none, context.Cause(ctx)
	}
}

// read returns a file's bytes, or standard input's for "-". It may wait for a pipe.
func (a *app) read(path string) ([]byte, error) {
	var r io.Reader = a.in
	name := "standard input"
	if path != "-" {
		name = path
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		r = f
	}
	b, err := io.ReadAll(io.LimitReader(r, maxFleetFile+1))
	if err == nil && len(b) > maxFleetFile {
		err = fmt.Errorf("%s is larger than 16 MiB", name)
	}
	return b, err
}

// readSecret reads the file of a secret. It does not wait for a pipe that nobody writes.
func readSecret(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|openWithoutWaiting, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	_ = f.SetReadDeadline(time.Now().Add(secretWithin)) // a regular file needs none
	b, err := io.ReadAll(io.LimitReader(f, maxSecretFile+1))
	if err == nil && len(b) > maxSecretFile {
		err = fmt.Errorf("%s is larger than 64 KiB", path)
	}
	return b, err
}

// regular refuses what is no regular file, before opening it could wait.
func regular(path string) error {
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("open %s: not a regular file", path)
	}
	return err
}

// publicKey loads a trusted key. Key files are regular files.
func publicKey(path string) (*attest.Public, error) {
	if err := regular(path); err != nil {
		return nil, err
	}
	return attest.LoadPublicFile(path)
}

// subjectDigest is the SHA-256 of a file's bytes in hexadecimal.
func (a *app) subjectDigest(ctx context.Context, path string) (string, error) {
	digest, err := within(ctx, func() (string, error) { return fileSHA256(ctx, path) })
	return digest, unreadable(ctx, "read a subject", err)
}

func fileSHA256(ctx context.Context, path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	buf := make([]byte, 1<<20)
	for ctx.Err() == nil {
		n, err := f.Read(buf)
		h.Write(buf[:n])
		if errors.Is(err, io.EOF) {
			return hex.EncodeToString(h.Sum(nil)), nil
		} else if err != nil {
			return "", err
		}
	}
	return "", context.Cause(ctx)
}
