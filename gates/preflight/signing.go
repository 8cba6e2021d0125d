package preflight

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/narwhal-fleet/narwhal/attest"
	"github.com/narwhal-fleet/narwhal/runtime/engine"
)

// Signing is a sidecar's answer to a nonce.
type Signing struct {
	Status int    `json:"status"` // 0 = no answer
	Code   string `json:"code,omitempty"`
	Error  string `json:"error,omitempty"`
}

// signing asks a sidecar for a statement over a new nonce. It is not verified here: gate E does.
func signing(ctx context.Context, address string) (out Signing) {
	if address == "" {
		return Signing{Error: "the engine has no sidecar"}
	}
	ctx, cancel := context.WithTimeout(ctx, signWithin)
	defer cancel()
	resp, err := askSidecar(ctx, address)
	if err != nil {
		return Signing{Error: engine.Printable(err.Error(), longText)}
	}
	defer resp.Body.Close()
	out.Status = resp.StatusCode
	b, err := io.ReadAll(io.LimitReader(resp.Body, attest.MaxBundle))
	if err != nil {
		out.Error = engine.Printable(err.Error(), longText)
	}
	var refused struct {
		Error struct {
			Code string `json:"code"`
		} `json:"error"`
	}
	if json.Unmarshal(b, &refused) == nil {
		out.Code = engine.Printable(refused.Error.Code, 64)
	}
	return out
}

// signWithin bounds a sidecar's answer.
const signWithin = 30 * time.Second

func askSidecar(ctx context.Context, address string) (*http.Response, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(map[string]string{"nonce": attest.NewNonce()})
	if err != nil {
		return nil, err
	}
	u.Path = strings.TrimSuffix(u.Path, "/v1/attestation") + "/v1/statement"
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return c.Do(req)
}
