package fabric

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/runtime/engine"
)

// loads says how each engine is asked: alone, or a decoding process together with a prefilling
// one. An engine that cannot be asked has no asker, and says why.
func (q DecodeRequest) loads(ctx context.Context, d engine.Dialect) (out []*decoding, closing func()) {
	opt := engine.Options{}
	if q.Key != "" {
		opt.Key = fleet.NewSecret(os.Getenv(q.Key))
	}
	var clients []*engine.Client
	closing = func() {
		for _, c := range clients {
			c.Close()
		}
	}
	var prefill *engine.Client
	decode := map[*decoding]*engine.Client{}
	for i, e := range slices.Concat(q.Engines, q.Others) {
		l := &decoding{out: Decoded{IID: e.IID}}
		if i < len(q.Engines) {
			out = append(out, l)
		}
		c, err := engine.NewClient(e.URL, opt)
		if err != nil {
			l.failed = err
			continue
		}
		clients = append(clients, c)
		role, err := roleAt(ctx, d, c)
		switch {
		case err != nil:
			l.failed = err
		case role == engine.RolePrefill:
			l.out.Role, l.out.Lent = role, true
			prefill = c
		case role == engine.RoleDecode:
			l.out.Role, decode[l] = role, c
		default:
			l.ask = alone(c)
		}
	}
	for l, c := range decode {
		l.ask, l.failed = paired(ctx, d, prefill, c)
	}
	return out, closing
}

// roleAt is the live role of a process, RoleNone where its dialect has none.
func roleAt(ctx context.Context, d engine.Dialect, c *engine.Client) (string, error) {
	s, ok := d.(engine.Switcher)
	if !ok {
		return engine.RoleNone, nil
	}
	ctx, cancel := context.WithTimeout(ctx, roleWithin)
	defer cancel()
	return s.Role(ctx, c)
}

func paired(ctx context.Context, d engine.Dialect, prefill, decode *engine.Client) (asker, error) {
	meeter, ok := d.(engine.Meeter)
	if prefill == nil || !ok {
		return nil, errors.New("its process has the role decode, and none with the role prefill was found to begin requests")
	}
	ctx, cancel := context.WithTimeout(ctx, roleWithin)
	defer cancel()
	meet, err := meeter.Meet(ctx, prefill)
	if err != nil {
		return nil, fmt.Errorf("meet at the prefilling process: %w", err)
	}
	return together(d, prefill, decode, meet), nil
}
