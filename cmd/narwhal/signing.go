package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/narwhal-fleet/narwhal/attest"
	"github.com/narwhal-fleet/narwhal/internal/problem"
)

// openKMS opens a key that stays in a key management. It has no deadline: one would end
// the signing of later gates too.
func openKMS(ref string) (*attest.Signer, error) {
	s, err := attest.OpenKMS(context.Background(), ref)
	switch {
	case errors.Is(err, attest.ErrNoKMS):
		return nil, problem.Wrap(problem.Invalid, "kms_missing", "open the signing key", err, "put the named program into PATH; docs/signing.md says how it is built")
	case err != nil:
		return nil, problem.Wrap(problem.Failed, "kms_unusable", "open the signing key", err, "check the reference and the credentials of its provider")
	}
	return s, nil
}

// signingPolicy reads a signing policy; files that it names lie beside it unless absolute.
func signingPolicy(path string) (attest.Signers, error) {
	read := func(name string) ([]byte, error) {
		if !filepath.IsAbs(name) {
			name = filepath.Join(filepath.Dir(path), name)
		}
		if err := regular(name); err != nil {
			return nil, err
		}
		return os.ReadFile(name)
	}
	var out attest.Signers
	raw, err := read(filepath.Base(path))
	if err == nil {
		out, err = attest.ParseSigners(raw, read)
	}
	if err != nil {
		return out, problem.Wrap(problem.Invalid, "policy_unreadable", "read the signing policy", err, "docs/signing.md shows one, docs/schemas has its schema")
	}
	return out, nil
}
