package bundle

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/narwhal-fleet/narwhal/fleet"
)

func TestGetter(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/who":
			_, _ = w.Write([]byte(r.Host + " " + r.Header.Get("Authorization")))
		case "/busy":
			w.WriteHeader(503)
			_, _ = w.Write([]byte(`{"reason":"x"}`))
		case "/away":
			http.Redirect(w, r, "/who", http.StatusFound)
		case "/endless":
			for r.Context().Err() == nil {
				if _, err := w.Write(make([]byte, 1<<20)); err != nil {
					return
				}
			}
		}
	}))
	defer srv.Close()
	var dialed []string
	get := Getter(func(ctx context.Context, host, address string) (net.Conn, error) {
		dialed = append(dialed, host+" "+address)
		return (&net.Dialer{}).DialContext(ctx, "tcp", srv.Listener.Addr().String())
	}, func(url string) fleet.Secret {
		if url == "http://192.0.2.1:8100/who" {
			return fleet.NewSecret("k")
		}
		return fleet.Secret{}
	})
	b, err := get(t.Context(), "h1", "http://192.0.2.1:8100/who")
	if err != nil || string(b) != "192.0.2.1:8100 Bearer k" || len(dialed) != 1 || dialed[0] != "h1 192.0.2.1:8100" {
		t.Errorf("%q %v, dialed %v", b, err, dialed)
	}
	var status *StatusError
	if b, err := get(t.Context(), "h1", "http://h/busy"); !errors.As(err, &status) || status.Status != 503 || !bytes.Contains(b, []byte("reason")) {
		t.Errorf("%q %v", b, err)
	}
	if _, err := get(t.Context(), "h1", "http://h/away"); !errors.As(err, &status) || status.Status != 302 {
		t.Errorf("a redirect was followed: %v", err)
	}
	if b, err := get(t.Context(), "h1", "http://h/endless"); err != nil || len(b) != maxAnswer+1 {
		t.Errorf("%d bytes, %v", len(b), err)
	}
}
