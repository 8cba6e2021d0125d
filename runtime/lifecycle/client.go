// Package lifecycle orders engines in and out of service through a router's routes.
//
// It promises bounded reading of what a router says, typed refusals, and waits that end with
// their context. It refuses to judge engines: the router decides, and its word is passed on.
package lifecycle

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
)

// Limits of what is read of a router, and of how long it is waited for.
const (
	maxAnswer = 16 << 20 // bytes
	maxReason = 400      // bytes of a foreign text that is repeated
	lookLimit = 10 * time.Second
)

// Client asks one router.
type Client struct {
	base  string
	http  *http.Client
	token fleet.Secret
}

// New is a client of the router at a base URL; orders carry the token unless it is empty.
// transport nil uses one of its own.
func New(base string, token fleet.Secret, transport http.RoundTripper) (*Client, error) {
	u, err := url.Parse(base)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return nil, errors.New("want the address of a router, like http://127.0.0.1:8000")
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return nil, errors.New("the address of a router has neither user nor query")
	}
	if transport == nil {
		transport = &http.Transport{DisableCompression: true, IdleConnTimeout: 3 * time.Second}
	}
	// A redirect would carry the token to somebody else.
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &Client{strings.TrimRight(base, "/"), &http.Client{Transport: transport, CheckRedirect: stay}, token}, nil
}

// Close ends idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Look reads the lifecycle of every engine.
func (c *Client) Look(ctx context.Context) (Document, error) {
	ctx, cancel := context.WithTimeout(ctx, lookLimit)
	defer cancel()
	status, _, b, err := c.ask(ctx, http.MethodGet, "/narwhal/lifecycle", nil)
	if err != nil {
		return Document{}, err
	}
	if status != http.StatusOK {
		return Document{}, unexpected(status, b)
	}
	return parseDocument(b)
}

// State reads the engines with their roles and what keeps them out.
func (c *Client) State(ctx context.Context) (State, error) {
	ctx, cancel := context.WithTimeout(ctx, lookLimit)
	defer cancel()
	status, _, b, err := c.ask(ctx, http.MethodGet, "/narwhal/state", nil)
	if err != nil {
		return State{}, err
	}
	if status != http.StatusOK {
		return State{}, unexpected(status, b)
	}
	return parseState(b)
}

// order posts an order. A *Refusal comes with the document that the router sent beside it.
func (c *Client) order(ctx context.Context, path string, body any) (Document, error) {
	sent, err := json.Marshal(body)
	if err != nil {
		return Document{}, err
	}
	status, head, b, err := c.ask(ctx, http.MethodPost, path, sent)
	if err != nil {
		return Document{}, err
	}
	switch status {
	case http.StatusOK, http.StatusConflict, http.StatusServiceUnavailable:
	case http.StatusUnauthorized, http.StatusForbidden:
		return Document{}, &Denied{Status: status, Reason: reasonOf(b), Sent: !c.token.Empty()}
	default:
		return Document{}, unexpected(status, b)
	}
	d, err := parseDocument(b)
	if err != nil {
		return Document{}, err
	}
	if status != http.StatusOK {
		return d, &Refusal{Status: status, Reason: short(d.Error)}
	}
	if told := head.Get("Narwhal-Order-Stored"); told != "" {
		stored := told == "true"
		d.Stored = &stored
	}
	return d, nil
}

// ask sends one request and reads its answer whole.
func (c *Client) ask(ctx context.Context, method, path string, body []byte) (int, http.Header, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
		if !c.token.Empty() {
			req.Header.Set("Authorization", "Bearer "+c.token.Reveal())
		}
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return 0, nil, nil, &Unreachable{cause: err}
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return 0, nil, nil, &Unreachable{cause: fmt.Errorf("read the answer: %w", err)}
	}
	if len(b) > maxAnswer {
		return 0, nil, nil, &Strange{fmt.Sprintf("the answer to %s has more than %d bytes", path, maxAnswer)}
	}
	return resp.StatusCode, resp.Header, b, nil
}
