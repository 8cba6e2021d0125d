package remote

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"slices"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
)

// maxKeyFile bounds a private key file, in bytes.
const maxKeyFile = 1 << 20

// credentials offers what a hop has to one handshake and remembers what happened.
type credentials struct {
	hop      Hop
	conn     net.Conn // to the agent
	tried    []string
	problems []string
}

func (c *credentials) close() {
	if c.conn != nil {
		_ = c.conn.Close()
	}
}

// methods are public keys first, then the password both ways.
func (c *credentials) methods() []ssh.AuthMethod {
	methods := []ssh.AuthMethod{ssh.PublicKeysCallback(c.signers)}
	if c.hop.Password.Empty() {
		return methods
	}
	return append(methods, ssh.KeyboardInteractive(c.answer), ssh.PasswordCallback(func() (string, error) {
		c.tried = append(c.tried, "password")
		return c.hop.Password.Reveal(), nil
	}))
}

// answer gives the password to each hidden question. Servers also ask rounds without any.
func (c *credentials) answer(_, _ string, questions []string, echo []bool) ([]string, error) {
	answers := make([]string, len(questions))
	for i := range questions {
		if !echo[i] {
			answers[i] = c.hop.Password.Reveal()
		}
	}
	if len(questions) > 0 {
		c.tried = append(c.tried, "keyboard-interactive")
	}
	return answers, nil
}

// signers returns the keys of identity files, then those of the agent. A server counts each
// as an attempt, so keys that were named come before keys that happen to be loaded.
func (c *credentials) signers() ([]ssh.Signer, error) {
	loaded := c.fromAgent()
	var named []ssh.Signer
	for _, id := range c.hop.Identities {
		signer, err := c.identity(id, loaded)
		switch {
		case err != nil && (id.Required || !errors.Is(err, fs.ErrNotExist)):
			c.problems = append(c.problems, fmt.Sprintf("identity %s: %v", id.Path, err))
		case err == nil:
			named = append(named, signer...)
			c.tried = append(c.tried, "identity "+id.Path)
		}
	}
	if c.hop.IdentitiesOnly {
		return named, nil
	}
	for _, s := range loaded {
		if !holds(named, s.PublicKey()) {
			named = append(named, s)
			c.tried = append(c.tried, "agent key "+ssh.FingerprintSHA256(s.PublicKey()))
		}
	}
	return named, nil
}

func holds(signers []ssh.Signer, key ssh.PublicKey) bool { return find(signers, key) != nil }

func find(signers []ssh.Signer, key ssh.PublicKey) ssh.Signer {
	for _, s := range signers {
		if bytes.Equal(s.PublicKey().Marshal(), key.Marshal()) {
			return s
		}
	}
	return nil
}

func (c *credentials) fromAgent() []ssh.Signer {
	if c.hop.Agent == "" {
		return nil
	}
	conn, err := net.Dial("unix", c.hop.Agent)
	if err != nil {
		c.problems = append(c.problems, fmt.Sprintf("ssh agent: %v", err))
		return nil
	}
	c.conn = conn
	signers, err := agent.NewClient(conn).Signers()
	if err != nil {
		c.problems = append(c.problems, fmt.Sprintf("ssh agent: %v", err))
	}
	return signers
}

// identity loads one key file, with its certificate first where there is one. An encrypted key
// comes from the agent when it is loaded there.
func (c *credentials) identity(id Identity, loaded []ssh.Signer) ([]ssh.Signer, error) {
	info, err := os.Stat(id.Path)
	if err != nil {
		return nil, err
	}
	if info.Size() > maxKeyFile {
		return nil, fmt.Errorf("larger than %d bytes", maxKeyFile)
	}
	text, err := os.ReadFile(id.Path)
	if err != nil {
		return nil, err
	}
	signer, err := c.decrypt(text, loaded)
	if err != nil {
		return nil, err
	}
	signers := []ssh.Signer{signer}
	if cert := certificate(id.Path+"-cert.pub", signer); cert != nil {
		signers = slices.Insert(signers, 0, cert)
	}
	return signers, nil
}

var errPassphrase = errors.New("encrypted, and neither the agent nor a passphrase opens it")

func (c *credentials) decrypt(text []byte, loaded []ssh.Signer) (ssh.Signer, error) {
	signer, err := ssh.ParsePrivateKey(text)
	var missing *ssh.PassphraseMissingError
	if !errors.As(err, &missing) {
		return signer, err
	}
	if missing.PublicKey != nil {
		if s := find(loaded, missing.PublicKey); s != nil {
			return s, nil
		}
	}
	if c.hop.Passphrase.Empty() {
		return nil, errPassphrase
	}
	return ssh.ParsePrivateKeyWithPassphrase(text, []byte(c.hop.Passphrase.Reveal()))
}

func certificate(path string, signer ssh.Signer) ssh.Signer {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	key, _, _, _, err := ssh.ParseAuthorizedKey(text)
	if err != nil {
		return nil
	}
	cert, ok := key.(*ssh.Certificate)
	if !ok {
		return nil
	}
	s, err := ssh.NewCertSigner(cert, signer)
	if err != nil {
		return nil
	}
	return s
}
