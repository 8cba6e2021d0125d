package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/install"
	"github.com/narwhal-fleet/narwhal/internal/problem"
)

// release describes the binaries that the hosts shall carry.
func (s *session) release() (gates.Release, error) {
	d := s.fleet.Deploy.Release
	path := s.path(d.Binary)
	if d.Binary == "" {
		exe, err := os.Executable()
		if err != nil {
			return gates.Release{}, fmt.Errorf("find own binary: %w", err)
		}
		path = exe
	}
	b, err := readBinary(path, "deploy.release.binary")
	if err != nil {
		return gates.Release{}, err
	}
	rel := gates.Release{Path: b.Path, SHA256: b.SHA256, Bytes: b.Bytes, Arch: b.Arch, Interp: b.Interp}
	for _, arch := range slices.Sorted(maps.Keys(d.Binaries)) {
		field := "deploy.release.binaries." + arch
		b, err := readBinary(s.path(d.Binaries[arch]), field)
		if err != nil {
			return rel, err
		}
		if b.Arch != arch {
			return rel, problem.New(problem.Invalid, "release_architecture", fmt.Sprintf("%s names a program for %.64q, want one for %s", b.Path, b.Arch, arch),
				"check "+field+"; make release builds one for every system")
		}
		rel.More = append(rel.More, b)
	}
	keys, err := s.trustOf(s.app)
	if err != nil {
		return rel, err
	}
	for _, k := range keys {
		rel.Trust = append(rel.Trust, string(k.PEM()))
	}
	return rel, nil
}

// readBinary takes a file's digest and what its header says.
func readBinary(path, field string) (gates.Binary, error) {
	b := gates.Binary{Path: path}
	unreadable := func(err error) error {
		return problem.Wrap(problem.Invalid, "release_unreadable", "read the release", err, "check "+field)
	}
	f, err := os.Open(path)
	if err != nil {
		return b, unreadable(err)
	}
	defer f.Close()
	h := sha256.New()
	if b.Bytes, err = io.Copy(h, f); err != nil {
		return b, unreadable(err)
	}
	b.SHA256 = hex.EncodeToString(h.Sum(nil))
	b.Arch, b.Interp = install.Header(f)
	return b, nil
}
