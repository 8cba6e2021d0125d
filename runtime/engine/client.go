package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/runtime/engine/wire"
)

// Bounds of answers that the client reads whole.
const (
	maxControlBytes = 4 << 20
	maxErrorBytes   = 64 << 10
	maxAnswerBytes  = 64 << 20
)

// Options of a client. The zero value is usable.
type Options struct {
	// Key is the engine's bearer key; empty sends none.
	Key fleet.Secret
	// Transport carries the requests; nil uses one of the client's own, without proxy.
	Transport http.RoundTripper
	// Direct, if not nil, carries Do over plain TCP without net/http's transport; its address
	// is that of the client. It has no effect on an https address.
	Direct *wire.Options
	// Carry, if not nil, names further header lines of a leg, from its context.
	Carry func(ctx context.Context, set func(name, value string))
	// MaxAnswer bounds buffered answers in bytes; 0 = 64 MiB.
	MaxAnswer int64
}

// Client speaks to one engine. It is safe for concurrent use, follows no redirect and sets no
// deadline of its own: the context does. Close frees its idle connections.
type Client struct {
	base      string
	authorize func(http.Header) // holds the key where no formatting reaches it
	http      *http.Client
	wire      *wire.Pool // nil = Do goes through http
	prefix    string     // path of base
	fields    func(requestID string) []wire.Field
	maxAnswer int64
	carry     func(context.Context, func(name, value string))
}

// NewClient returns a client for a base URL like http://127.0.0.1:8000.
func NewClient(base string, opt Options) (*Client, error) {
	u, err := url.Parse(base)
	if err != nil {
		return nil, fmt.Errorf("read engine url: %w", err)
	}
	if (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.RawQuery != "" || u.User != nil {
		return nil, fmt.Errorf("read engine url %q: want http://host:port", u.Redacted())
	}
	c := &Client{base: strings.TrimRight(u.String(), "/"), authorize: bearer(opt.Key), maxAnswer: opt.MaxAnswer, carry: opt.Carry}
	if c.maxAnswer <= 0 {
		c.maxAnswer = maxAnswerBytes
	}
	rt := opt.Transport
	if rt == nil {
		rt = &http.Transport{
			DisableCompression:  true,
			MaxIdleConnsPerHost: 64,
			IdleConnTimeout:     60 * time.Second,
		}
	}
	c.http = &http.Client{Transport: rt, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
	if opt.Direct != nil && u.Scheme == "http" {
		o := *opt.Direct
		if o.Address = u.Host; u.Port() == "" {
			o.Address = net.JoinHostPort(u.Hostname(), "80")
		}
		c.wire, c.prefix = wire.New(o), strings.TrimRight(u.EscapedPath(), "/")
		c.fields = wireFields(opt.Key)
	}
	return c, nil
}

func bearer(key fleet.Secret) func(http.Header) {
	if key.Empty() {
		return func(http.Header) {}
	}
	return func(h http.Header) { h.Set("Authorization", "Bearer "+key.Reveal()) }
}

func wireFields(key fleet.Secret) func(string) []wire.Field {
	return func(requestID string) []wire.Field {
		fields := make([]wire.Field, 0, 2)
		if !key.Empty() {
			fields = append(fields, wire.Field{Name: "Authorization", Value: "Bearer " + key.Reveal()})
		}
		if requestID != "" {
			fields = append(fields, wire.Field{Name: "X-Request-Id", Value: requestID})
		}
		return fields
	}
}

// Base is the engine's URL without a trailing slash.
func (c *Client) Base() string { return c.base }

// Close frees idle connections.
func (c *Client) Close() {
	c.http.CloseIdleConnections()
	if c.wire != nil {
		c.wire.Close()
	}
}

// Forget closes idle connections, for an engine whose process has changed or gone.
func (c *Client) Forget() {
	c.http.CloseIdleConnections()
	if c.wire != nil {
		c.wire.CloseIdle()
	}
}

// Do sends one leg and returns the answer as it is, whatever its status. The caller closes the
// body; closing it early, or ending ctx, aborts the request at the engine. An empty requestID
// sends none. Errors are transport errors only.
func (c *Client) Do(ctx context.Context, path string, body []byte, requestID string) (*http.Response, error) {
	if c.wire != nil {
		fields := c.fields(requestID)
		if c.carry != nil {
			c.carry(ctx, func(name, value string) { fields = append(fields, wire.Field{Name: name, Value: value}) })
		}
		resp, err := c.wire.Post(ctx, c.prefix+path, fields, body)
		if err != nil {
			return nil, fmt.Errorf("ask engine: %w", err)
		}
		return resp, nil
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	if requestID != "" {
		req.Header.Set("X-Request-Id", requestID)
	}
	if c.carry != nil {
		c.carry(ctx, req.Header.Set)
	}
	return c.send(req)
}

func (c *Client) send(req *http.Request) (*http.Response, error) {
	c.authorize(req.Header)
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("ask engine: %w", err)
	}
	return resp, nil
}

// get returns a successful answer's body; the caller closes it.
func (c *Client) get(ctx context.Context, path string) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+path, nil)
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	resp, err := c.send(req)
	if err != nil {
		return nil, err
	}
	if err := Refused(resp); err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// GetJSON reads a control answer into out, bounded. A refusal is a *StatusError.
func (c *Client) GetJSON(ctx context.Context, path string, out any) error {
	body, err := c.get(ctx, path)
	if err != nil {
		return err
	}
	defer body.Close()
	return decode(body, path, maxControlBytes, out)
}

// PostJSON sends v and reads the answer into out, both bounded. It serves control calls; legs
// go through Do.
func (c *Client) PostJSON(ctx context.Context, path string, v, out any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("write request: %w", err)
	}
	resp, err := c.Do(ctx, path, body, "")
	if err != nil {
		return err
	}
	if err := Refused(resp); err != nil {
		return err
	}
	defer resp.Body.Close()
	return decode(resp.Body, path, c.maxAnswer, out)
}

// Refused returns a *StatusError and closes the body when the status is not 2xx, and nil
// otherwise.
func Refused(resp *http.Response) error {
	if resp.StatusCode/100 == 2 {
		return nil
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxErrorBytes))
	if err != nil {
		return errors.Join(&StatusError{Status: resp.StatusCode, Code: resp.StatusCode}, err)
	}
	return ParseStatusError(resp.StatusCode, b)
}

// ReadAll reads a body up to limit bytes and fails with a *TooLargeError beyond.
func ReadAll(r io.Reader, what string, limit int64) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", what, err)
	}
	if int64(len(b)) > limit {
		return nil, &TooLargeError{What: what, Limit: limit}
	}
	return b, nil
}

func decode(r io.Reader, what string, limit int64, v any) error {
	b, err := ReadAll(r, what, limit)
	if err != nil {
		return err
	}
	if v == nil {
		return nil
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("read answer of %s: %w", what, err)
	}
	return nil
}
