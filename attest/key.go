package attest

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"

	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"github.com/sigstore/sigstore/pkg/signature"
)

// Signer is a private key that signs. Its methods may be called from many goroutines.
type Signer struct {
	sv  signature.SignerVerifier
	pub *Public
}

// Public is a public key that may be trusted.
type Public struct {
	key  crypto.PublicKey
	v    signature.Verifier
	hint string
	pem  []byte
}

// GenerateKey makes an ECDSA P-256 key pair in PEM. With a passphrase the private
// key is encrypted the way cosign does it; without one it is plain PKCS #8.
func GenerateKey(passphrase []byte) (privatePEM, publicPEM []byte, err error) {
	pass := cryptoutils.SkipPassword
	if len(passphrase) > 0 {
		pass = cryptoutils.StaticPasswordFunc(passphrase)
	}
	privatePEM, publicPEM, err = cryptoutils.GeneratePEMEncodedECDSAKeyPair(elliptic.P256(), pass)
	if err != nil {
		return nil, nil, fmt.Errorf("generate key: %w", err)
	}
	return privatePEM, publicPEM, nil
}

// LoadSigner reads a private key: ECDSA, Ed25519 or RSA of at least 2048 bits,
// plain or encrypted. An encrypted one costs about 0.3 s. Errors: ErrPassphrase.
func LoadSigner(privatePEM, passphrase []byte) (*Signer, error) {
	block, err := onePEM(privatePEM)
	if err != nil {
		return nil, fmt.Errorf("load private key: %w", err)
	}
	encrypted := strings.Contains(block.Type, "ENCRYPTED") || block.Headers["Proc-Type"] != ""
	pass := cryptoutils.SkipPassword
	if encrypted {
		if len(passphrase) == 0 {
			return nil, fmt.Errorf("load private key: it is encrypted: %w", ErrPassphrase)
		}
		pass = cryptoutils.StaticPasswordFunc(passphrase)
	}
	key, err := cryptoutils.UnmarshalPEMToPrivateKey(privatePEM, pass)
	if err != nil && encrypted {
		return nil, fmt.Errorf("load private key: %w", ErrPassphrase)
	}
	if err != nil {
		return nil, fmt.Errorf("load private key: %w", err)
	}
	sv, err := signature.LoadSignerVerifier(key, crypto.SHA256)
	if err != nil {
		return nil, fmt.Errorf("load private key: %w", err)
	}
	raw, err := sv.PublicKey()
	if err != nil {
		return nil, fmt.Errorf("load private key: %w", err)
	}
	pub, err := newPublic(raw)
	if err != nil {
		return nil, fmt.Errorf("load private key: %w", err)
	}
	return &Signer{sv: sv, pub: pub}, nil
}

// LoadPublic reads one public key in PEM.
func LoadPublic(publicPEM []byte) (*Public, error) {
	if _, err := onePEM(publicPEM); err != nil {
		return nil, fmt.Errorf("load public key: %w", err)
	}
	key, err := cryptoutils.UnmarshalPEMToPublicKey(publicPEM)
	if err != nil {
		return nil, fmt.Errorf("load public key: %w", err)
	}
	pub, err := newPublic(key)
	if err != nil {
		return nil, fmt.Errorf("load public key: %w", err)
	}
	return pub, nil
}

func onePEM(text []byte) (*pem.Block, error) {
	if len(text) > MaxKey {
		return nil, fmt.Errorf("%d bytes, limit %d", len(text), MaxKey)
	}
	block, rest := pem.Decode(text)
	if block == nil {
		return nil, errors.New("not PEM")
	}
	if len(bytes.TrimSpace(rest)) > 0 {
		return nil, errors.New("more than one PEM block")
	}
	return block, nil
}

// strong refuses kinds and sizes of keys that no verifier here should trust.
func strong(key crypto.PublicKey) error {
	switch k := key.(type) {
	case *ecdsa.PublicKey:
		if k.Curve != elliptic.P256() && k.Curve != elliptic.P384() && k.Curve != elliptic.P521() {
			return errors.New("the curve is none of P-256, P-384 and P-521")
		}
	case *rsa.PublicKey:
		if n := k.N.BitLen(); n < 2048 || n > 8192 {
			return fmt.Errorf("the RSA key has %d bits, want 2048 to 8192", n)
		}
	case ed25519.PublicKey:
	default:
		return errors.New("this kind of key is not supported, want ECDSA, RSA or Ed25519")
	}
	return nil
}

func newPublic(key crypto.PublicKey) (*Public, error) {
	if err := strong(key); err != nil {
		return nil, err
	}
	v, err := signature.LoadVerifier(key, crypto.SHA256)
	if err != nil {
		return nil, err
	}
	der, err := cryptoutils.MarshalPublicKeyToDER(key)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(der)
	return &Public{
		key: key, v: v, hint: base64.StdEncoding.EncodeToString(sum[:]),
		pem: cryptoutils.PEMEncode(cryptoutils.PublicKeyPEMType, der),
	}, nil
}

// Public returns the signer's public key.
func (s *Signer) Public() *Public { return s.pub }

// Hint is the key's name in a bundle: base64 of the SHA-256 of its PKIX DER.
func (p *Public) Hint() string { return p.hint }

// PEM returns the key in PEM.
func (p *Public) PEM() []byte { return bytes.Clone(p.pem) }
