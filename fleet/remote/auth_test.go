package remote

import (
	"encoding/pem"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/narwhal-fleet/narwhal/fleet/remote/loopback"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
)

func TestCredentials(t *testing.T) {
	const word = "correct horse"
	key, path := userKey(t)
	s := serve(t, loopback.Config{Authorized: []string{key.Public}, Password: hidden(word), User: "narwhal"})
	base := hopTo(s, "alpha", path)
	base.Identities = nil

	private, err := ssh.ParseRawPrivateKey(key.Private)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKeyWithPassphrase(private, "", []byte(word))
	if err != nil {
		t.Fatal(err)
	}
	locked := filepath.Join(t.TempDir(), "locked")
	if err := os.WriteFile(locked, pem.EncodeToMemory(block), 0o600); err != nil {
		t.Fatal(err)
	}
	encrypted := []Identity{{Path: locked, Required: true}}
	socket := serveAgent(t, private)

	for name, c := range map[string]struct {
		change func(*Hop)
		ok     bool
	}{
		"password":                 {func(h *Hop) { h.Password = hidden(word) }, true},
		"wrong password":           {func(h *Hop) { h.Password = hidden("wrong " + word) }, false},
		"passphrase":               {func(h *Hop) { h.Identities, h.Passphrase = encrypted, hidden(word) }, true},
		"wrong passphrase":         {func(h *Hop) { h.Identities, h.Passphrase = encrypted, hidden("wrong "+word) }, false},
		"no passphrase":            {func(h *Hop) { h.Identities = encrypted }, false},
		"agent":                    {func(h *Hop) { h.Agent = socket }, true},
		"agent has the encrypted":  {func(h *Hop) { h.Agent, h.Identities, h.IdentitiesOnly = socket, encrypted, true }, true},
		"agent has none of them":   {func(h *Hop) { h.Agent, h.IdentitiesOnly = socket, true }, false},
		"agent is gone, password":  {func(h *Hop) { h.Agent, h.Password = socket+"x", hidden(word) }, true},
		"other user":               {func(h *Hop) { h.User, h.Agent = "root", socket }, false},
		"missing default identity": {func(h *Hop) { h.Identities, h.Password = []Identity{{Path: "/none"}}, hidden(word) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			h := base
			c.change(&h)
			err := open(t, h)
			if (err == nil) != c.ok {
				t.Fatalf("err = %v", err)
			}
			if err != nil {
				stage(t, err, "alpha", StageAuth)
				if strings.Contains(err.Error()+Hint(err), word) {
					t.Errorf("the secret shows: %v", err)
				}
			}
		})
	}
	t.Run("keyboard-interactive alone", func(t *testing.T) {
		c := &credentials{hop: Hop{Password: hidden(word)}}
		if a, err := c.answer("", "", nil, nil); err != nil || a == nil || len(a) != 0 {
			t.Errorf("no question: %q %v", a, err)
		}
		if a, _ := c.answer("", "", []string{"Name:", "Password:"}, []bool{true, false}); a[0] != "" || a[1] != word {
			t.Errorf("answers: %q", a)
		}
	})
}

func serveAgent(t *testing.T, key any) string {
	t.Helper()
	ring := agent.NewKeyring()
	if err := ring.Add(agent.AddedKey{PrivateKey: key}); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(t.TempDir(), "agent")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); wg.Wait() })
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { _ = agent.ServeAgent(ring, c); _ = c.Close() })
		}
	})
	return socket
}
