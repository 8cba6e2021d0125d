package preflight

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/engine"
)

// PeerAt is the engine beside which one is measured whose role is a state of its process: alone it
// answers no request.
type PeerAt struct {
	IID string `json:"iid"`
	URL string `json:"url"`
	// Role is the one that the fleet file gives it.
	Role string `json:"role"`
	// Fixed means that both keep the roles that their processes have.
	Fixed bool `json:"fixed,omitempty"`
}

// duo is a prefilling and a decoding process that answer requests together, both legs at once.
type duo struct {
	d               engine.Dialect
	prefill, decode *engine.Client
	meet            engine.Rendezvous
	back            []func(context.Context) error
}

// errRoles means that two processes cannot answer together.
var errRoles = errors.New("their roles are not prefill and decode")

// roleOfProcess is the live role, RoleNone where the dialect has none.
func roleOfProcess(ctx context.Context, d engine.Dialect, c *engine.Client) (string, error) {
	s, ok := d.(engine.Switcher)
	if !ok {
		return engine.RoleNone, nil
	}
	return s.Role(ctx, c)
}

// newDuo is what prefill and decode are together. Processes in other roles are switched where that
// is asked for, and switched back by close; else the answer is errRoles.
func newDuo(ctx context.Context, d engine.Dialect, prefill, decode *engine.Client, change bool) (*duo, error) {
	m, ok := d.(engine.Meeter)
	if !ok {
		return nil, fmt.Errorf("hand over: dialect %s has no meeting point", d.Name())
	}
	u := &duo{d: d, prefill: prefill, decode: decode}
	for _, x := range []struct {
		c    *engine.Client
		want string
	}{{prefill, engine.RolePrefill}, {decode, engine.RoleDecode}} {
		if err := u.settle(ctx, x.c, x.want, change); err != nil {
			return nil, errors.Join(err, u.close(ctx))
		}
	}
	var err error
	if u.meet, err = m.Meet(ctx, prefill); err != nil {
		return nil, errors.Join(err, u.close(ctx))
	}
	return u, nil
}

// settle has a process play a role.
func (u *duo) settle(ctx context.Context, c *engine.Client, want string, change bool) error {
	is, err := roleOfProcess(ctx, u.d, c)
	if err != nil || is == want {
		return err
	}
	s, ok := u.d.(engine.Switcher)
	if !change || is == engine.RoleNone || !ok {
		return fmt.Errorf("hand over: a process in the role %s is to play %s: %w", is, want, errRoles)
	}
	if err := switchTo(ctx, s, c, want); err != nil {
		return err
	}
	u.back = append(u.back, func(ctx context.Context) error { return switchTo(ctx, s, c, is) })
	return nil
}

func switchTo(ctx context.Context, s engine.Switcher, c *engine.Client, role string) error {
	ctx, cancel := context.WithTimeout(ctx, switchWithin)
	defer cancel()
	// A process that has just answered is not idle yet.
	err := engine.TakeRole(ctx, s, c, role, switchRetry)
	switch {
	case errors.Is(err, engine.ErrKeepsRole), errors.Is(err, engine.ErrRoleLost):
		return fmt.Errorf("switch a process to the role %s: %w: %w", role, err, errRoles)
	case err != nil:
		return fmt.Errorf("switch a process to the role %s: %w", role, err)
	}
	return nil
}

// Bounds of a switch, which may capture graphs.
const (
	switchWithin = time.Minute
	switchRetry  = 2 * time.Second
)

// close gives the processes their roles back, the last first.
func (u *duo) close(ctx context.Context) (err error) {
	if u == nil {
		return nil
	}
	for i := len(u.back) - 1; i >= 0; i-- {
		err = errors.Join(err, u.back[i](context.WithoutCancel(ctx)))
	}
	u.back = nil
	return err
}

// withPeer makes a prober of an engine with a role ask together with its peer. An engine that serves
// whole requests is asked alone.
func (p *prober) withPeer(ctx context.Context, d engine.Dialect, peer *PeerAt, key string) (done func() error, err error) {
	nothing := func() error { return nil }
	role, err := roleOfProcess(ctx, d, p.client)
	if err != nil || role == engine.RoleNone {
		return nothing, err
	}
	if peer == nil {
		return nothing, fmt.Errorf("measure an engine in the role %s: no engine that answers has the other role, in which it could help", role)
	}
	c, err := engine.NewClient(peer.URL, keyed(key))
	if err != nil {
		return nothing, err
	}
	if peer.Role == engine.RoleDecode {
		p.duo, err = newDuo(ctx, d, p.client, c, !peer.Fixed)
	} else {
		p.duo, err = newDuo(ctx, d, c, p.client, !peer.Fixed)
	}
	if err != nil {
		err = fmt.Errorf("ask together with %s: %w", peer.IID, err)
	}
	return func() error { defer c.Close(); return p.duo.close(ctx) }, err
}

// stream runs both legs of one request with a prompt of ids and returns what the decoding process
// streams, and how long the prefilling one took. When one leg fails, the other is ended.
func (u *duo) stream(ctx context.Context, model string, ids []int, n int, seen func()) (t timing, prefill time.Duration, err error) {
	body, err := streamBody(model, ids, n)
	if err != nil {
		return t, 0, err
	}
	meet := u.meet
	meet.Room = engine.NewRoom()
	first, second, err := engine.Pair(u.d, body, false, meet)
	if err != nil {
		return t, 0, err
	}
	rid := fmt.Sprintf("preflight-%d-%d", time.Now().UnixNano(), meet.Room)
	if tag, ok := u.d.(engine.Tagger); ok {
		if first, err = tag.Tag(first, rid+"-p"); err == nil {
			second, err = tag.Tag(second, rid+"-d")
		}
		if err != nil {
			return t, 0, err
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	begin := time.Now()
	left := make(chan error, 1)
	go func() {
		_, err := u.prefill.CompleteBody(ctx, first, rid+"-p")
		prefill = time.Since(begin)
		if err != nil {
			cancel()
		}
		left <- err
	}()
	t, err = streamed(ctx, u.decode, second, rid+"-d", seen)
	if err != nil {
		cancel()
	}
	if perr := <-left; perr != nil && (err == nil || errors.Is(err, context.Canceled)) {
		return t, prefill, fmt.Errorf("prefill: %w", perr)
	}
	if err != nil {
		return t, prefill, fmt.Errorf("decode: %w", err)
	}
	return t, prefill, nil
}
