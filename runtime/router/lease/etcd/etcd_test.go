package etcd

import (
	"context"
	"crypto/tls"
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/runtime/router/lease"
	"github.com/narwhal-fleet/narwhal/runtime/router/lease/conformance"
)

const (
	ttl    = 5 * time.Second
	margin = time.Second
)

func TestConforms(t *testing.T) {
	endpoint, _ := startServer(t)
	conformance.Run(t, conformance.Target{TTL: ttl, Margin: margin, Expire: expire, Store: func(t *testing.T) func(string, time.Duration, time.Duration) lease.Lease {
		return func(holder string, ttl, margin time.Duration) lease.Lease {
			return open(t, endpoint, key(t), holder, ttl, margin)
		}
	}})
}

// TestExpiresByItself waits for the event of the key's end, of a holder that stopped
// renewing.
func TestExpiresByItself(t *testing.T) {
	endpoint, _ := startServer(t)
	a, b := open(t, endpoint, key(t), "a", time.Second, 300*time.Millisecond), open(t, endpoint, key(t), "b", ttl, margin)
	term, err := a.Claim(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if term, err = a.Renew(t.Context(), term); err != nil {
		t.Fatal(err)
	}
	r, err := b.fetch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	awaitEnd(t, b, r.revision)
	if term.Valid(time.Now()) {
		t.Error("the term outlives its key")
	}
	if next, err := b.Claim(t.Context()); err != nil || next.Epoch != term.Epoch+1 {
		t.Errorf("claimed %+v, %v", next, err)
	}
	if _, err := a.Renew(t.Context(), term); !errors.Is(err, lease.ErrLost) {
		t.Errorf("renewed: %v", err)
	}
}

// TestKeeperOutlivesAPause stops etcd, as an election does, and lets it go on.
func TestKeeperOutlivesAPause(t *testing.T) {
	endpoint, process := startServer(t)
	s := open(t, endpoint, key(t), "a", 20*time.Second, margin)
	term, err := s.Claim(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	renewed := make(chan error, 1)
	go func() {
		_, err := s.Renew(t.Context(), term)
		renewed <- err
	}()
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := s.Look(short); err == nil {
		t.Error("a stopped server answers")
	}
	if err := process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := <-renewed; err != nil {
		t.Errorf("renew over a pause: %v", err)
	}
}

func TestPassword(t *testing.T) {
	endpoint, _ := startServer(t)
	admin := open(t, endpoint, key(t), "a", ttl, margin).client
	for _, err := range []error{
		second(admin.RoleAdd(t.Context(), "root")), second(admin.UserAdd(t.Context(), "root", "open-sesame")),
		second(admin.UserGrantRole(t.Context(), "root", "root")), second(admin.AuthEnable(t.Context())),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := open(t, endpoint, key(t), "a", ttl, margin).Claim(t.Context()); err == nil {
		t.Error("claimed without a password")
	}
	o := Options{Endpoints: []string{endpoint}, Key: key(t), Holder: "a", TTL: ttl, Margin: margin, User: "root", Password: fleet.NewSecret("wrong")}
	if s, err := Open(o); err == nil || strings.Contains(err.Error(), "wrong") {
		t.Errorf("opened with a wrong password: %v, %v", s, err)
	}
	o.Password = fleet.NewSecret("open-sesame")
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	term, err := s.Claim(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Renew(t.Context(), term); err != nil {
		t.Error(err)
	}
}

func second[T any](_ T, err error) error { return err }

func TestOptions(t *testing.T) {
	secret := fleet.NewSecret("x")
	for name, c := range map[string]struct {
		o    Options
		want string // endpoints joined; "" = refused
	}{
		"bare":               {Options{Endpoints: []string{"e1:2379", "e2:2379"}}, "http://e1:2379 http://e2:2379"},
		"bare with TLS":      {Options{Endpoints: []string{"e1:2379"}, TLS: &tls.Config{}}, "https://e1:2379"},
		"https":              {Options{Endpoints: []string{"https://e1:2379/"}, User: "u", Password: secret}, "https://e1:2379"},
		"loopback password":  {Options{Endpoints: []string{"127.0.0.1:1", "[::1]:1"}, User: "u", Password: secret}, "http://127.0.0.1:1 http://[::1]:1"},
		"plain password":     {Options{Endpoints: []string{"e1:2379"}, User: "u", Password: secret}, ""},
		"mixed":              {Options{Endpoints: []string{"https://e1:2379", "http://e2:2379"}}, ""},
		"http with TLS":      {Options{Endpoints: []string{"http://e1:2379"}, TLS: &tls.Config{}}, ""},
		"password in it":     {Options{Endpoints: []string{"http://u:p4ss@e1:2379"}}, ""},
		"server name":        {Options{Endpoints: []string{"e1:2379"}, TLS: &tls.Config{ServerName: "x"}}, ""},
		"no port":            {Options{Endpoints: []string{"e1"}}, ""},
		"another scheme":     {Options{Endpoints: []string{"unix://e1:1"}}, ""},
		"a path":             {Options{Endpoints: []string{"http://e1:1/x"}}, ""},
		"none":               {Options{}, ""},
		"user, no password":  {Options{Endpoints: []string{"e1:1"}, User: "u"}, ""},
		"less than a second": {Options{Endpoints: []string{"e1:1"}, TTL: 500 * time.Millisecond}, ""},
	} {
		c.o.Key, c.o.Holder, c.o.Margin = "/k", "h", 100*time.Millisecond
		if c.o.TTL == 0 {
			c.o.TTL = ttl
		}
		err := c.o.check()
		if got := strings.Join(c.o.Endpoints, " "); (err == nil) != (c.want != "") || err == nil && got != c.want {
			t.Errorf("%s: %q, %v", name, got, err)
		} else if err != nil && strings.Contains(err.Error(), "p4ss") {
			t.Errorf("%s: the error tells the password: %v", name, err)
		}
	}
}
