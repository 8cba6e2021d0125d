package router

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"

	"github.com/narwhal-fleet/narwhal/runtime/engine"
	"github.com/narwhal-fleet/narwhal/runtime/model"
	"github.com/narwhal-fleet/narwhal/runtime/profile"
)

// IdentityDigest is the digest that binds a profile to one engine process in a fleet
// without an engine contract: SHA-256 of the canonical JSON of version and process start.
func IdentityDigest(id engine.Identity) string {
	text := `{"engine":{"process_start_time_seconds":` + canonicalFloat(id.ProcessStart) + `,"version":` + canonicalString(id.Version) + `}}`
	sum := sha256.Sum256([]byte(text))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// canonicalFloat writes a float as the reference's canonical JSON does: the shortest
// decimal that reads back, ".0" on whole numbers, an exponent from 1e16 and below 1e-4.
func canonicalFloat(v float64) string {
	if a := math.Abs(v); a != 0 && (a >= 1e16 || a < 1e-4) {
		return strconv.FormatFloat(v, 'e', -1, 64)
	}
	s := strconv.FormatFloat(v, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

func canonicalString(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r >= 0x20 && r < 0x7f:
			b.WriteRune(r)
		case r > 0xffff:
			r -= 0x10000
			fmt.Fprintf(&b, `\u%04x\u%04x`, 0xd800+(r>>10), 0xdc00+(r&0x3ff))
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// facts are what a live engine says about itself.
type facts struct {
	identity  engine.Identity
	blockSize int               // 0 = not known
	mute      bool              // it answers without saying its block size
	lease     float64           // seconds that it holds unread KV; 0 = not told
	meet      engine.Rendezvous // room not set
	role      model.Role        // of the live process; "" where a role is only a label
	root      string            // model path as the engine was told
	context   int               // tokens of prompt and answer that one request may have; 0 = not told
}

// examine asks an engine who it is and whether its profile still holds.
func (s *settings) examine(ctx context.Context, n *node) (facts, error) {
	ctx, cancel := context.WithTimeout(ctx, s.health+max(s.health, s.firstToken))
	defer cancel()
	if err := s.dialect.Ready(ctx, n.control); err != nil {
		return facts{}, fmt.Errorf("probe health: %w", err)
	}
	id, err := s.dialect.Identity(ctx, n.control)
	if err != nil {
		return facts{}, fmt.Errorf("read identity: %w", err)
	}
	if err := s.token(ctx, n); err != nil {
		return facts{}, fmt.Errorf("probe a token: %w", err)
	}
	f, _, err := s.describe(ctx, n, id)
	if err != nil {
		return facts{}, err
	}
	switch err := s.verify(ctx, n.row, id); {
	case errors.Is(err, ErrUnvouched):
		return f, err
	case err != nil:
		return f, &generationError{err}
	}
	return f, nil
}

// ErrUnvouched: who vouches for an engine's process could not be asked, which says nothing of the
// process. Such an engine stays out until somebody can.
var ErrUnvouched = errors.New("its sidecar cannot be asked")

// describe reads what placement needs to know of a process; served reports whether it lists
// the fleet's model.
func (s *settings) describe(ctx context.Context, n *node, id engine.Identity) (f facts, served bool, err error) {
	f = facts{identity: id}
	l, err := s.dialect.Layout(ctx, n.control)
	if err == nil {
		f.blockSize = l.BlockSize
	}
	var missing *engine.MissingError
	f.mute = errors.As(err, &missing)
	if list, err := n.control.Models(ctx); err == nil {
		for _, m := range list {
			if m.ID == s.Fleet.Model {
				f.context, f.root, served = max(0, m.MaxModelLen), m.Root, true
			}
		}
	}
	return f, served, s.paired(ctx, n, &f)
}

// paired reads what a concurrent dialect needs of an engine.
func (s *settings) paired(ctx context.Context, n *node, f *facts) (err error) {
	m, ok := s.dialect.(engine.Meeter)
	if !ok {
		return nil
	}
	if f.meet, err = m.Meet(ctx, n.control); err != nil {
		return fmt.Errorf("read where it meets: %w", err)
	}
	if f.role, err = s.roleOf(ctx, n); err != nil {
		return fmt.Errorf("read role: %w", err)
	}
	return nil
}

// token asks an engine for one token: a process that answers probes may generate nothing.
func (s *settings) token(ctx context.Context, n *node) error {
	if s.dialect.Concurrent() {
		return s.dialect.Ready(ctx, n.control) // which runs one token
	}
	n.probed.Add(1)
	_, err := n.control.Complete(ctx, engine.CompletionRequest{Model: s.Fleet.Model, Prompt: "probe " + requestID(), MaxTokens: 1,
		IgnoreEOS: true, RequestID: "probe-" + requestID()})
	return err
}

// agrees compares what an engine says of itself with the others of the fleet: engines with
// unequal caches, model paths or versions hand KV over and answer with other words.
func (o *owner) agrees(n *node, f facts) error {
	for _, m := range o.nodes {
		if m == n || !m.met() {
			continue
		}
		if err := differ(n.id, f, m.id, m.facts); err != nil {
			return err
		}
	}
	return nil
}

// differ says in what two engines differ that must agree.
func differ(a string, f facts, b string, g facts) error {
	switch {
	case f.identity.Version != g.identity.Version:
		return fmt.Errorf("engine %s has version %s and engine %s has %s", a, f.identity.Version, b, g.identity.Version)
	case f.blockSize != g.blockSize && f.blockSize > 0 && g.blockSize > 0:
		return fmt.Errorf("engine %s has KV blocks of %d tokens and engine %s of %d", a, f.blockSize, b, g.blockSize)
	case f.mute && g.blockSize > 0 || g.mute && f.blockSize > 0:
		if g.mute {
			a, b, g = b, a, f
		}
		return fmt.Errorf("engine %s does not say how large its KV blocks are and engine %s has %d tokens", a, b, g.blockSize)
	case f.root != g.root && f.root != "" && g.root != "":
		return fmt.Errorf("engine %s serves the model at %q and engine %s at %q", a, engine.Printable(f.root, 200), b, engine.Printable(g.root, 200))
	}
	return nil
}

// incarnate notes whose handoffs an engine makes. Another name than before means another
// process: its handoff is not used until the engine has been asked who it is.
func (r *Router) incarnate(n *node, engineID string) error {
	id := rank.ReplaceAllString(engineID, "")
	for _, m := range r.own.nodes {
		if m != n && m.incarnation == id {
			return fmt.Errorf("handoff is of engine %s", m.id)
		}
	}
	if n.incarnation == "" {
		n.incarnation = id
	}
	if n.incarnation == id {
		return nil
	}
	if !n.checking {
		n.checking = true
		r.background.Go(func() { r.recheck(n, id) })
	}
	return errors.New("handoff is of another process than the one that was examined")
}

// rank is the suffix of a data parallel rank.
var rank = regexp.MustCompile(`_dp\d+$`)

// recheck examines an engine whose handoffs changed their owner.
func (r *Router) recheck(n *node, id string) {
	f, err := r.set.examine(r.life, n)
	if r.life.Err() != nil {
		return
	}
	r.own.do(func() {
		n.checking = false
		var gen *generationError
		switch {
		case errors.As(err, &gen), err == nil && n.known && !f.identity.Same(n.facts.identity):
			r.own.eject(n, causeIdentity)
		case err == nil:
			n.incarnation = id
			n.forget()
		}
	})
}

// generationError means that the engine is well but its profile is of another generation.
type generationError struct{ cause error }

func (e *generationError) Error() string { return e.cause.Error() }
func (e *generationError) Unwrap() error { return e.cause }

// ErrGeneration: an engine's live process is not the one that its profile was measured on.
var ErrGeneration = errors.New("profile is of another generation")

func (e *generationError) Is(target error) bool { return target == ErrGeneration }

func (s *settings) verify(ctx context.Context, row profile.Row, id engine.Identity) error {
	if s.Verify != nil {
		return s.Verify(ctx, row, id)
	}
	if !row.Bound(IdentityDigest(id)) {
		return fmt.Errorf("profile of engine %s is of another generation than the live process", row.IID)
	}
	return nil
}
