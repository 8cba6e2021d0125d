package serve

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates"
)

type readyArgs struct {
	Within fleet.Duration `json:"within"`
}

// Ready is what the router said of itself through the tunnel.
type Ready struct {
	Ready    bool            `json:"ready"`
	Reason   string          `json:"reason"` // why not, "" when ready
	WaitedMS int64           `json:"waited_ms"`
	Health   json.RawMessage `json:"health"`
	State    json.RawMessage `json:"state"`
}

// Locals are the operations of the gate that run on the workstation.
func (Gate) Locals() map[string]gates.Local {
	return map[string]gates.Local{"ready": ready, "trial": trial, "standing": standing, "journal": journalRows, "ring": ring, "acceptance": accept, "bundle": collect,
		"out": outing(takeOut), "activate": activate, "back": outing(takeBack), "monitoring": watch}
}

// tunnel opens the way to the router and returns its local base URL.
func tunnel(ctx context.Context, env gates.Env) (base string, lost <-chan struct{}, err error) {
	r := env.View().Fleet.Deploy.Router
	addr, lost, err := env.Tunnel(ctx, r.Host, r.Listen)
	if err != nil {
		return "", nil, err
	}
	return "http://" + addr, lost, nil
}

// ready asks until the router admits requests or the time is up.
func ready(ctx context.Context, env gates.Env, raw json.RawMessage) ([]byte, error) {
	var a readyArgs
	if err := json.Unmarshal(raw, &a); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	base, _, err := tunnel(ctx, env)
	if err != nil {
		return nil, err
	}
	var out Ready
	out.WaitedMS, err = await(ctx, a.Within.D(), func() bool {
		out.Ready, out.Reason = askReady(ctx, base)
		return out.Ready
	})
	if err != nil {
		return nil, err
	}
	if out.Health, err = get(ctx, base+"/health"); err != nil {
		out.Health = json.RawMessage("null")
	}
	if out.State, err = get(ctx, base+"/narwhal/state"); err != nil {
		out.State = json.RawMessage("null")
	}
	return json.Marshal(out)
}

// await looks until it is done or the time is up, and returns how long that took, in
// milliseconds.
func await(ctx context.Context, within time.Duration, done func() bool) (waited int64, err error) {
	begin := time.Now()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for !done() && time.Since(begin) <= within {
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-tick.C:
		}
	}
	return time.Since(begin).Milliseconds(), nil
}

func askReady(ctx context.Context, base string) (bool, string) {
	status, b, err := askFor(ctx, base+"/ready")
	if err != nil && status == 0 {
		return false, "the router does not answer"
	}
	var r struct {
		Reason string `json:"reason"`
	}
	if err != nil || json.Unmarshal(b, &r) != nil {
		return false, fmt.Sprintf("the router answered %d with no reason", status)
	}
	return status == http.StatusOK, r.Reason
}

// askFor asks once; status 0 = no answer.
func askFor(ctx context.Context, url string) (status int, body []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	return resp.StatusCode, b, err
}

const maxState = 16 << 20

// get reads a JSON document of the router.
func get(ctx context.Context, url string) (json.RawMessage, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxState))
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK || !json.Valid(b) {
		return nil, fmt.Errorf("get %s: status %d", url, resp.StatusCode)
	}
	return b, nil
}
