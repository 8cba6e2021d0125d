package etcd

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
)

// Limits of this package.
const (
	dialLimit    = 5 * time.Second // for the first authentication
	cleanupLimit = time.Second     // for giving back what a failed claim may have left
	maxMessage   = 64 << 10        // bytes of one answer
	maxPEM       = 1 << 20         // bytes of a certificate or key file
)

// Options configure a Store.
type Options struct {
	Endpoints []string // host:port, or http(s)://host:port; all with one scheme
	Key       string   // of the document; the epoch stands at Key + "/epoch"
	Holder    string   // from lease.NewHolder
	TTL       time.Duration
	Margin    time.Duration
	// TLS is nil for http and host:port, or for https with the system's roots. etcd's
	// certificate must name the endpoint's host; the client knows no other name for it.
	TLS      *tls.Config
	User     string
	Password fleet.Secret
	// Mended, if not nil, is called after a renewal that wrote the key anew, with what had become
	// of it.
	Mended func(why error)
}

// TLSFiles name PEM files. All are optional; Cert and Key belong together.
type TLSFiles struct {
	CA   string // roots; "" = the system's
	Cert string
	Key  string
}

// Config reads the files.
func (f TLSFiles) Config() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if f.CA != "" {
		b, err := readPEM(f.CA)
		if err != nil {
			return nil, err
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(b) {
			return nil, fmt.Errorf("read %s: no certificate in it", f.CA)
		}
	}
	if f.Cert == "" && f.Key == "" {
		return c, nil
	}
	cert, err := readPEM(f.Cert)
	if err != nil {
		return nil, err
	}
	key, err := readPEM(f.Key)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("read client certificate: %w", err)
	}
	c.Certificates = []tls.Certificate{pair}
	return c, nil
}

func readPEM(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read certificate or key: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxPEM+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if len(b) > maxPEM {
		return nil, fmt.Errorf("read %s: more than %d bytes", path, maxPEM)
	}
	return b, nil
}

// check refuses options and fills the scheme of the endpoints and TLS.
func (o *Options) check() error {
	if len(o.Endpoints) == 0 || o.Key == "" || o.Holder == "" {
		return errors.New("endpoints, key and holder must be given")
	}
	if o.TTL < time.Second || o.Margin < 0 || o.TTL <= o.Margin {
		return errors.New("ttl must be at least a second and exceed the safety margin")
	}
	if (o.User == "") != o.Password.Empty() {
		return errors.New("user and password belong together")
	}
	if o.TLS != nil && o.TLS.ServerName != "" {
		return errors.New("a server name has no effect: each endpoint is checked against its own host")
	}
	secure, local := 0, 0
	ends := make([]string, len(o.Endpoints))
	for i, e := range o.Endpoints {
		if !strings.Contains(e, "://") {
			e = map[bool]string{true: "https://", false: "http://"}[o.TLS != nil] + e
		}
		u, err := url.Parse(e)
		if err != nil || u.Port() == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || (u.Scheme != "http" && u.Scheme != "https") {
			return fmt.Errorf("endpoint %d is no host:port or http(s)://host:port without user", i+1)
		}
		if u.Scheme == "https" {
			secure++
		}
		if ip := net.ParseIP(u.Hostname()); ip != nil && ip.IsLoopback() {
			local++
		}
		ends[i] = u.Scheme + "://" + u.Host
	}
	if secure != 0 && secure != len(ends) || secure == 0 && o.TLS != nil {
		return errors.New("endpoints must all be https, or all be http without TLS")
	}
	if o.User != "" && secure == 0 && local != len(ends) {
		return errors.New("a password needs https, or endpoints on loopback")
	}
	if secure > 0 && o.TLS == nil {
		o.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	o.Endpoints = ends
	return nil
}
