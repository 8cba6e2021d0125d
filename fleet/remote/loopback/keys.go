package loopback

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"fmt"
	"strings"

	"golang.org/x/crypto/ssh"
)

// Key is one ed25519 key pair.
type Key struct {
	// Private is an OpenSSH private key without passphrase, as PEM.
	Private []byte
	// Public is the authorized_keys line, without a newline.
	Public string
	// Fingerprint is "SHA256:…" of the public key.
	Fingerprint string
}

// GenerateKey makes a key pair for a host or a user. The caller keeps it.
func GenerateKey() (Key, error) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return Key{}, fmt.Errorf("generate ssh key: %w", err)
	}
	block, err := ssh.MarshalPrivateKey(private, "")
	if err != nil {
		return Key{}, fmt.Errorf("encode ssh key: %w", err)
	}
	return ReadKey(pem.EncodeToMemory(block))
}

// ReadKey completes a private key that is kept as PEM.
func ReadKey(private []byte) (Key, error) {
	signer, err := ssh.ParsePrivateKey(private)
	if err != nil {
		return Key{}, fmt.Errorf("read ssh key: %w", err)
	}
	return Key{Private: private, Public: line(signer.PublicKey()), Fingerprint: ssh.FingerprintSHA256(signer.PublicKey())}, nil
}

func line(key ssh.PublicKey) string {
	return strings.TrimSuffix(string(ssh.MarshalAuthorizedKey(key)), "\n")
}

// authorised maps the wire form of each key in lines, which may carry comments.
func authorised(lines []string) (map[string]bool, error) {
	keys := map[string]bool{}
	for _, text := range lines {
		key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(text))
		if err != nil {
			return nil, fmt.Errorf("read authorised key: %w", err)
		}
		keys[string(key.Marshal())] = true
	}
	return keys, nil
}
