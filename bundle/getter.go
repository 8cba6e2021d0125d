package bundle

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"

	"github.com/narwhal-fleet/narwhal/fleet"
)

// Getter makes a Source's HTTP of a way to connect from a host. It follows no redirect,
// uses no proxy, and reads a little more than Collect keeps. bearer, which may be nil, gives
// the credential for a URL, or an empty secret.
func Getter(dial func(ctx context.Context, host, address string) (net.Conn, error), bearer func(url string) fleet.Secret) func(ctx context.Context, host, url string) ([]byte, error) {
	return func(ctx context.Context, host, url string) ([]byte, error) {
		t := &http.Transport{
			DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: 64 << 10,
			DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) { return dial(ctx, host, addr) },
		}
		defer t.CloseIdleConnections()
		client := &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return nil, fmt.Errorf("get: %w", err)
		}
		if bearer != nil {
			if s := bearer(url); !s.Empty() {
				req.Header.Set("Authorization", "Bearer "+s.Reveal())
			}
		}
		resp, err := client.Do(req)
		if err != nil {
			return nil, fmt.Errorf("get: %w", err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
		if err != nil {
			return nil, fmt.Errorf("get: %w", err)
		}
		if resp.StatusCode/100 != 2 {
			return body, &StatusError{Status: resp.StatusCode}
		}
		return body, nil
	}
}
