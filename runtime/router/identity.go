package router

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/narwhal-fleet/narwhal/runtime/engine"
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
	blockSize int
	context   int // tokens of prompt and answer that one request may have; 0 = not told
}

// examine asks an engine who it is and whether its profile still holds.
func (s *settings) examine(ctx context.Context, n *node) (facts, error) {
	ctx, cancel := context.WithTimeout(ctx, s.health)
	defer cancel()
	if err := n.control.Health(ctx); err != nil {
		return facts{}, fmt.Errorf("probe health: %w", err)
	}
	id, err := n.control.Identity(ctx)
	if err != nil {
		return facts{}, fmt.Errorf("read identity: %w", err)
	}
	f := facts{identity: id}
	if l, err := n.control.CacheLayout(ctx); err == nil {
		f.blockSize = l.BlockSize
	}
	if list, err := n.control.Models(ctx); err == nil {
		for _, m := range list {
			if m.ID == s.Fleet.Model {
				f.context = max(0, m.MaxModelLen)
			}
		}
	}
	if err := s.verify(ctx, n.row, id); err != nil {
		return f, &generationError{err}
	}
	return f, nil
}

// generationError means that the engine is well but its profile is of another generation.
type generationError struct{ cause error }

func (e *generationError) Error() string { return e.cause.Error() }
func (e *generationError) Unwrap() error { return e.cause }

func (s *settings) verify(ctx context.Context, row profile.Row, id engine.Identity) error {
	if s.Verify != nil {
		return s.Verify(ctx, row, id)
	}
	if !row.Bound(IdentityDigest(id)) {
		return fmt.Errorf("profile of engine %s is of another generation than the live process", row.IID)
	}
	return nil
}
