package lifecycle

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Target is what an order is for: one engine, or with All the whole fleet.
type Target struct {
	IID string
	All bool
}

func (t Target) String() string {
	if t.All {
		return "the fleet"
	}
	return t.IID
}

type orderBody struct {
	Engines  []string `json:"engines,omitempty"`
	Wave     bool     `json:"wave,omitempty"`
	Deadline float64  `json:"deadline_s,omitempty"` // seconds
	Digest   string   `json:"sha256,omitempty"`
}

func (t Target) body() orderBody {
	if t.All {
		return orderBody{Wave: true}
	}
	return orderBody{Engines: []string{t.IID}}
}

// find looks an engine up before an order is given.
func (t Target) find(d Document) error {
	if _, ok := d.Engines[t.IID]; ok || t.All {
		return nil
	}
	return &Unknown{t.IID, d.IDs()}
}

// Held reports whether an order keeps the target out.
func (t Target) Held(d Document) bool {
	if t.All {
		return d.Wave.Active
	}
	return d.Engines[t.IID].Draining
}

// Ready reports whether the target has finished what it had and may be stopped: it is drained,
// or a return after that has failed, which leaves an engine blocked.
func (t Target) Ready(d Document) bool {
	if !t.Held(d) {
		return false
	}
	if t.All && d.Wave.Ready {
		return true
	}
	for id, e := range d.Engines {
		if (t.All || id == t.IID) && !e.Ready {
			return false
		}
	}
	return true
}

// Blocked names what keeps the target from moving on by itself, "" for nothing.
func (t Target) Blocked(d Document) string {
	for _, id := range d.IDs() {
		if e := d.Engines[id]; (t.All || id == t.IID) && e.State == blocked {
			if e.Error == "" {
				return id + " is blocked"
			}
			return id + ": " + e.Error
		}
	}
	return ""
}

// outdatedWords are those of a router, without sidecars and with them.
var outdatedWords = []string{"is of another generation than the live process", "its profile was measured on another launch"}

// Outdated names the blocked engines of the target whose profiles are of another generation, nil for none.
func (t Target) Outdated(d Document) *Outdated {
	var out *Outdated
	for _, id := range d.IDs() {
		e := d.Engines[id]
		if !t.All && id != t.IID || e.State != blocked || !slices.ContainsFunc(outdatedWords, func(w string) bool { return strings.Contains(e.Error, w) }) {
			continue
		}
		if out == nil {
			out = &Outdated{Reason: id + ": " + e.Error}
		}
		out.IIDs = append(out.IIDs, id)
	}
	return out
}

// Restart reports whether the target returns as another process only.
func (t Target) Restart(d Document) bool {
	for id, e := range d.Engines {
		if (t.All || id == t.IID) && e.Restart && e.Draining {
			return true
		}
	}
	return false
}

// Drain takes the target out of placement; its requests finish, and deadline says when it
// counts as late. A target that is out already, with its process recorded, stays as it is.
func (c *Client) Drain(ctx context.Context, t Target, deadline time.Duration) (Document, error) {
	d, err := c.Look(ctx)
	if err == nil {
		err = t.find(d)
	}
	if err != nil {
		return d, err
	}
	if e := d.Engines[t.IID]; !t.All && e.Draining && e.Old != nil && !d.Wave.Active && d.Router.Controls {
		return d, nil
	}
	b := t.body()
	b.Deadline = deadline.Seconds()
	return c.order(ctx, "/narwhal/lifecycle/drain", b)
}

// Readmit takes the target back.
func (c *Client) Readmit(ctx context.Context, t Target) (Document, error) {
	d, err := c.Look(ctx)
	if err == nil {
		err = t.find(d)
	}
	if err != nil {
		return d, err
	}
	return c.order(ctx, "/narwhal/lifecycle/readmit", t.body())
}

// conflicted reports a refusal that a later try may not meet.
func conflicted(err error) bool {
	var r *Refusal
	return errors.As(err, &r) && r.Status == http.StatusConflict
}

// Activate lets the router take the profiles of engines, of all where none is named, from its store,
// whose bytes must have the digest unless that is "".
func (c *Client) Activate(ctx context.Context, engines []string, digest string) (Document, error) {
	return c.order(ctx, "/narwhal/lifecycle/activate", orderBody{Engines: engines, Wave: len(engines) == 0, Digest: digest})
}
