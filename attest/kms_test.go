package attest

import (
	"bytes"
	"context"
	"crypto"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sigstore/sigstore/pkg/signature"
	"github.com/sigstore/sigstore/pkg/signature/kms/cliplugin/handler"
)

// TestMain becomes a key management's program when it was started under such a name.
func TestMain(m *testing.M) {
	if strings.HasPrefix(filepath.Base(os.Args[0]), "sigstore-kms-") {
		keyManagement()
		return
	}
	os.Exit(m.Run())
}

// kmsOf is a key management with one key.
type kmsOf struct{ signature.SignerVerifier }

func (kmsOf) CreateKey(context.Context, string) (crypto.PublicKey, error) {
	return nil, errors.New("no")
}
func (kmsOf) CryptoSigner(context.Context, func(error)) (crypto.Signer, crypto.SignerOpts, error) {
	return nil, nil, errors.New("no")
}
func (kmsOf) SupportedAlgorithms() []string { return []string{"one"} }
func (kmsOf) DefaultAlgorithm() string      { return "one" }

// keyManagement answers one call of Sigstore's plugin protocol with a key from a file.
func keyManagement() {
	args, err := handler.GetPluginArgs(os.Args)
	if err == nil {
		var text []byte
		if text, err = os.ReadFile(args.InitOptions.KeyResourceID); err == nil {
			var s *Signer
			if s, err = LoadSigner(text, nil); err == nil {
				_, err = handler.Dispatch(os.Stdout, os.Stdin, args, kmsOf{s.sv})
			}
		}
	}
	if err != nil {
		_ = handler.WriteErrorResponse(os.Stdout, err)
	}
}

// keyManagements puts the programs of key managements into PATH.
func keyManagements(t *testing.T) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, scheme := range kmsSchemes {
		if err := os.Symlink(self, filepath.Join(dir, "sigstore-kms-"+scheme)); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir)
}

func TestKMS(t *testing.T) {
	keyManagements(t)
	private, public, err := GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, private, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, scheme := range kmsSchemes {
		s, err := OpenKMS(t.Context(), scheme+"://"+key)
		if err != nil || !bytes.Equal(s.Public().PEM(), public) {
			t.Fatalf("%s: %v", scheme, err)
		}
		if _, err := mustVerifier(t, testPolicy(s)).Verify(mustSign(t, s, testStatement())); err != nil {
			t.Errorf("%s: %v", scheme, err)
		}
	}
	if _, err := OpenKMS(t.Context(), "awskms:///nowhere"); err == nil || errors.Is(err, ErrNoKMS) || !strings.Contains(err.Error(), "awskms:///nowhere") {
		t.Errorf("a key that is not there: %v", err)
	}
	weak := filepath.Join(t.TempDir(), "weak")
	if err := os.WriteFile(weak, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenKMS(t.Context(), "gcpkms://"+weak); err == nil {
		t.Error("no key, and opened")
	}
}

func TestKMSWithoutItsProgram(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	for _, ref := range []string{"awskms:///alias/x", "gcpkms://projects/p", "azurekms://v/k", "hashivault://k"} {
		if !IsKMS(ref) {
			t.Errorf("%s is no key management", ref)
		}
		_, err := OpenKMS(t.Context(), ref)
		if !errors.Is(err, ErrNoKMS) || !strings.Contains(err.Error(), "attest/kms") {
			t.Errorf("%s: %v", ref, err)
		}
	}
	for _, ref := range []string{"", "file:x", "/a/b.key", "evil://x", "awskms:x"} {
		if _, err := OpenKMS(t.Context(), ref); err == nil || IsKMS(ref) {
			t.Errorf("%s was opened", ref)
		}
	}
}
