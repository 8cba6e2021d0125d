package watch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/fleet/remote"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/attestation"
	"github.com/narwhal-fleet/narwhal/gates/preflight"
	"github.com/narwhal-fleet/narwhal/gates/record"
)

// OnHosts asks the fleet through its hosts, by what the record says of it.
type OnHosts struct {
	View    gates.View
	Connect gates.Connect
	Secret  func(fleet.SecretRef) (fleet.Secret, error)
	open    map[string]gates.Host
}

// Permit is the policy of the connections: the commands of handoffs, and dialling.
func Permit(f fleet.Fleet) func(remote.Operation) error {
	return func(op remote.Operation) error {
		if op.Kind == remote.KindDial {
			return nil
		}
		var q Pair
		if op.Kind == remote.KindRun && len(op.Argv) > 0 && json.Unmarshal([]byte(op.Argv[len(op.Argv)-1]), &q) == nil {
			if s := preflight.ProbeStep(f, q.From, q.To); op.Host == s.Host && op.Script == "" && slices.Equal(op.Argv, s.Argv) {
				return nil
			}
		}
		return errors.New("a watch hands over between engines and changes nothing")
	}
}

// Close ends the connections.
func (o *OnHosts) Close() {
	for _, h := range o.open {
		_ = h.Close()
	}
	o.open = nil
}

// host keeps a connection while it lives.
func (o *OnHosts) host(ctx context.Context, id string) (gates.Host, error) {
	if h := o.open[id]; h != nil {
		if a, ok := h.(interface{ Err() error }); !ok || a.Err() == nil {
			return h, nil
		}
		_ = h.Close()
		delete(o.open, id)
	}
	h, err := o.Connect(ctx, id)
	if err != nil {
		return nil, err
	}
	if o.open == nil {
		o.open = map[string]gates.Host{}
	}
	o.open[id] = h
	return h, nil
}

func (o *OnHosts) dial(ctx context.Context, host, address string) (net.Conn, error) {
	h, err := o.host(ctx, host)
	if err != nil {
		return nil, err
	}
	return h.Dial(ctx, "tcp", address)
}

// Bounds of an answer of the router.
const (
	maxState    = 16 << 20
	stateWithin = 10 * time.Second
)

// Resident asks the router for its state.
func (o *OnHosts) Resident(ctx context.Context) (map[string]int, error) {
	r := o.View.Fleet.Deploy.Router
	ctx, cancel := context.WithTimeout(ctx, stateWithin)
	defer cancel()
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return o.dial(ctx, r.Host, r.Listen) }},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.Listen+"/narwhal/state", nil)
	if err != nil {
		return nil, err
	}
	resp, err := c.Do(req)
	if err != nil {
		return nil, fmt.Errorf("ask the router: %w", err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxState))
	if err != nil {
		return nil, fmt.Errorf("read the router's state: %w", err)
	}
	return residents(resp.StatusCode, b)
}

// residents reads a router's state; it says nothing of engines that it does not name.
func residents(status int, b []byte) (map[string]int, error) {
	var state struct {
		Schema   string                    `json:"schema"`
		Resident map[string]map[string]int `json:"resident"`
	}
	if status != http.StatusOK {
		return nil, fmt.Errorf("read the router's state: it answered %d", status)
	}
	if err := json.Unmarshal(b, &state); err != nil || state.Resident == nil {
		return nil, errors.New("read the router's state: it names no engines")
	}
	out := map[string]int{}
	for id, phases := range state.Resident {
		out[id] = 0
		for _, n := range phases {
			if n < 0 {
				return nil, fmt.Errorf("read the router's state: engine %.64q has %d requests", id, n)
			}
			out[id] += n
		}
	}
	return out, nil
}

// Handoff runs the same host verb as gate F and gate G's ring.
func (o *OnHosts) Handoff(ctx context.Context, p Pair) ([]record.Finding, error) {
	s := preflight.ProbeStep(o.View.Fleet, p.From, p.To)
	secret := map[string]fleet.Secret{}
	for name, ref := range s.Secrets {
		v, err := o.Secret(ref)
		if err != nil {
			return nil, fmt.Errorf("read secret %s: %w", name, err)
		}
		secret[name] = v
	}
	h, err := o.host(ctx, s.Host)
	if err != nil {
		return nil, err
	}
	res, err := h.Run(ctx, remote.Command{Argv: s.Argv, SecretEnv: secret, Limit: s.Limit.D()})
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, res.Stderr)
	}
	if res.Truncated {
		return nil, errors.New("the host's answer is longer than the limit")
	}
	return preflight.JudgeProbe(o.View.Fleet, p.From, p.To, res.Stdout)
}

// Attest asks as gate E does, and holds the answer against what gates B, C and E recorded.
func (o *OnHosts) Attest(ctx context.Context, iid string) ([]record.Finding, error) {
	return attestation.Recheck(ctx, o.dial, o.View, iid)
}
