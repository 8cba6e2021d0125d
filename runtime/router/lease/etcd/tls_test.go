package etcd

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// issue writes a key and a certificate for 127.0.0.1, signed by parent or by itself.
func issue(t *testing.T, dir, name string, parent *x509.Certificate, signer *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IsCA: parent == nil, BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	if parent == nil {
		parent, signer = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{name + ".pem": {Type: "CERTIFICATE", Bytes: der}, name + "-key.pem": {Type: "EC PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(filepath.Join(dir, file), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	made, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return made, key
}

// TestTLS needs both sides' certificates: etcd refuses clients without one, and the client
// refuses an etcd that its roots do not know.
func TestTLS(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	ca, key := issue(t, dir, "ca", nil, nil)
	issue(t, dir, "server", ca, key)
	issue(t, dir, "client", ca, key)
	issue(t, dir, "stranger", nil, nil)
	const any = "https://127.0.0.1:0"
	endpoint, _ := startServer(t, "--listen-client-urls", any, "--advertise-client-urls", any, "--client-cert-auth",
		"--trusted-ca-file", at("ca.pem"), "--cert-file", at("server.pem"), "--key-file", at("server-key.pem"))
	for name, c := range map[string]struct {
		files TLSFiles
		works bool
	}{
		"both":             {TLSFiles{CA: at("ca.pem"), Cert: at("client.pem"), Key: at("client-key.pem")}, true},
		"no certificate":   {TLSFiles{CA: at("ca.pem")}, false},
		"another's roots":  {TLSFiles{CA: at("stranger.pem"), Cert: at("client.pem"), Key: at("client-key.pem")}, false},
		"system roots":     {TLSFiles{Cert: at("client.pem"), Key: at("client-key.pem")}, false},
		"another's client": {TLSFiles{CA: at("ca.pem"), Cert: at("stranger.pem"), Key: at("stranger-key.pem")}, false},
	} {
		config, err := c.files.Config()
		if err != nil {
			t.Fatal(err)
		}
		s, err := Open(Options{Endpoints: []string{endpoint}, Key: "/narwhal/tls", Holder: "a", TTL: ttl, Margin: margin, TLS: config})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), map[bool]time.Duration{true: 20 * time.Second, false: time.Second}[c.works])
		if _, err := s.Claim(ctx); (err == nil) != c.works {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
		_ = s.Close()
	}
	for _, bad := range []TLSFiles{{CA: at("none")}, {CA: at("client-key.pem")}, {Cert: at("client.pem")}, {Cert: at("client.pem"), Key: at("ca-key.pem")}, {CA: "/dev/zero"}} {
		if _, err := bad.Config(); err == nil {
			t.Errorf("%+v passes", bad)
		}
	}
}
