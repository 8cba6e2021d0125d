package router

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"slices"

	"github.com/narwhal-fleet/narwhal/internal/problem"
	"github.com/narwhal-fleet/narwhal/runtime/profile"
)

// activate takes the rows of engines from the profile store as its file is now. The router and
// its requests go on; an engine that serves takes no row of another generation than its own.
func (r *Router) activate(w http.ResponseWriter, q *http.Request) {
	ord, ok := r.readOrder(w, q)
	if !ok {
		return
	}
	if len(ord.Engines) == 0 && !ord.Wave {
		r.lifecycleAnswer(w, http.StatusConflict, `name the engines, or "wave":true for all`)
		return
	}
	s, no := r.set.storeOnDisk(q.Context(), ord.Digest)
	if no == nil {
		r.own.do(func() { no = r.own.activate(ord.Engines, s) })
	}
	if no != nil {
		r.lifecycleAnswer(w, no.status, no.text)
		return
	}
	r.lifecycleAnswer(w, http.StatusOK, "")
}

// storeOnDisk reads the profile store again. digest is the SHA-256 that its bytes must have,
// "" for any.
func (s *settings) storeOnDisk(ctx context.Context, digest string) (profile.Store, *refusedOrder) {
	if s.ReadProfiles == nil {
		return profile.Store{}, conflict("this router has no profile store that it can read again")
	}
	b, err := s.ReadProfiles(ctx)
	if err != nil {
		return profile.Store{}, unavailable("%v", err)
	}
	sum := sha256.Sum256(b)
	if is := hex.EncodeToString(sum[:]); digest != "" && digest != is {
		return profile.Store{}, conflict("the profile store has digest %.12s, not %.12q", is, digest)
	}
	store, err := profile.ReadStore(bytes.NewReader(b))
	if err != nil {
		return store, conflict("%s: %s", s.Fleet.Profiles.Path, problem.Of(problem.Invalid, "profiles", err).Message)
	}
	return store, nil
}

// activate replaces the rows of the named engines, of all where none is named: all or none.
func (o *owner) activate(engines []string, s profile.Store) *refusedOrder {
	var nodes []*node
	for _, id := range engines {
		n := o.node(id)
		if n == nil {
			return conflict("unknown engine %q", id)
		}
		if !slices.Contains(nodes, n) {
			nodes = append(nodes, n)
		}
	}
	if len(engines) == 0 {
		nodes = o.nodes
	}
	serves := o.notInControl() == nil
	rows := make([]profile.Row, len(nodes))
	for i, n := range nodes {
		row, ok := s.Row(n.id)
		switch {
		case !ok:
			return conflict("the profile store has no row of engine %s", n.id)
		case !measured(row):
			return conflict("the profile of engine %s holds no measurement", n.id)
		case row.GenerationDigest == nil && o.set.Verify == nil:
			return conflict("the profile of engine %s is bound to no generation", n.id)
		case serves && n.live() && !sameGeneration(n.row, row):
			return conflict("engine %s serves, and its new profile is of another generation: drain it first", n.id)
		}
		rows[i] = row
	}
	for i, n := range nodes {
		o.adoptProfile(n, rows[i])
	}
	o.publish()
	return nil
}

func sameGeneration(a, b profile.Row) bool {
	return a.GenerationDigest == nil && b.GenerationDigest == nil || a.GenerationDigest != nil && b.Bound(*a.GenerationDigest)
}

// adoptProfile gives an engine another row. What was learnt against the curve before says
// nothing of the new one.
func (o *owner) adoptProfile(n *node, row profile.Row) {
	now := o.now()
	n.settle(now, o.memory())
	n.row, n.curve = row, row.Curve()
	n.tail, n.risk = profile.Tail{}, 1
	n.decodeWork, n.prefillWork, n.kappa, n.prefillKappa = profile.Ratio{}, profile.Ratio{}, 1, 1
	n.prefixes.SetLimit(prefixLimit(n.curve.KVCapacity, o.set.Fleet.Engine.CharsPerToken))
	generation := ""
	if row.GenerationDigest != nil {
		generation = *row.GenerationDigest
	}
	o.set.Logger.Info("profile activated", "engine", n.id, "generation", generation)
	o.event("profile_activated", now, map[string]any{"iid": n.id, "generation_digest": generation, "curve": n.curve})
}
