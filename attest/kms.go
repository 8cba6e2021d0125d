package attest

import (
	"context"
	"crypto"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"

	"github.com/sigstore/sigstore/pkg/signature/kms"
)

// kmsSchemes are the key managements that a key may be named in.
var kmsSchemes = []string{"awskms", "azurekms", "gcpkms", "hashivault"}

// ErrNoKMS says that the program for a key management is not there.
var ErrNoKMS = errors.New("no program for this key management")

// IsKMS reports whether a key is named in a key management instead of by a file.
func IsKMS(ref string) bool {
	scheme, _, ok := strings.Cut(ref, "://")
	return ok && slices.Contains(kmsSchemes, scheme)
}

// OpenKMS opens a key that stays in a key management, as awskms:///alias/narwhal. The
// program sigstore-kms-SCHEME of PATH talks to it, as for every program that uses
// Sigstore's plugins; attest/kms makes one. Errors: ErrNoKMS.
func OpenKMS(ctx context.Context, ref string) (*Signer, error) {
	if !IsKMS(ref) {
		return nil, fmt.Errorf("open key %s: want one of %s, then ://", clip(ref), strings.Join(kmsSchemes, ", "))
	}
	scheme, _, _ := strings.Cut(ref, "://")
	program := "sigstore-kms-" + scheme
	if _, err := exec.LookPath(program); err != nil {
		return nil, fmt.Errorf("open key %s: %w: %s is not in PATH; go build -C attest/kms -o FOLDER/%s . makes it", clip(ref), ErrNoKMS, program, program)
	}
	sv, err := kms.Get(ctx, ref, crypto.SHA256)
	if err != nil {
		return nil, fmt.Errorf("open key %s: %w", clip(ref), err)
	}
	raw, err := sv.PublicKey()
	if err != nil {
		return nil, fmt.Errorf("open key %s: read its public half: %w", clip(ref), err)
	}
	pub, err := newPublic(raw)
	if err != nil {
		return nil, fmt.Errorf("open key %s: %w", clip(ref), err)
	}
	return &Signer{sv: sv, pub: pub}, nil
}
