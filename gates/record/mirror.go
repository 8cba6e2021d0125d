package record

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/narwhal-fleet/narwhal/internal/atomicfile"
)

// The log is the truth; fleet.json, plan.json and seals/ are copies of objects
// under names that people and other tools look for.

// mirrors lists the files that a state implies, with what they must hold.
func (s State) mirrors() map[string]Ref {
	out := map[string]Ref{}
	if !s.Fleet.Zero() {
		out[FleetFile] = s.Fleet
	}
	if !s.Plan.Object.Zero() {
		out[PlanFile] = s.Plan.Object
	}
	for name, seal := range s.Seals {
		if isName(name) {
			out[filepath.Join(SealDir, name+".sigstore.json")] = seal.Ref
		}
	}
	return out
}

// SetPlan stores the whole run's plan, records it, and mirrors it at plan.json.
func (r *Run) SetPlan(digest string, steps int, plan []byte) (Event, error) {
	ref, err := r.Store("application/json", plan)
	if err != nil {
		return Event{}, fmt.Errorf("set plan: %w", err)
	}
	return r.mirrored(KindPlan, "", Plan{Digest: digest, Object: ref, Steps: steps}, PlanFile, plan)
}

// Seal stores the Sigstore bundle over the line with that seq and digest (as
// Head gave them), records it, and mirrors it at seals/<gate>.sigstore.json.
// gate may also be another short name, such as "rollback".
func (r *Run) Seal(gate string, seq int64, digest string, bundle []byte) (Event, error) {
	if !isName(gate) {
		return Event{}, fmt.Errorf("seal: %q is not a name", clip(gate))
	}
	ref, err := r.Store("application/vnd.dev.sigstore.bundle.v0.3+json", bundle)
	if err != nil {
		return Event{}, fmt.Errorf("seal %s: %w", gate, err)
	}
	body := Seal{Ref: ref, Seq: seq, Digest: digest}
	return r.mirrored(KindSeal, gate, body, filepath.Join(SealDir, gate+".sigstore.json"), bundle)
}

func (r *Run) mirrored(kind Kind, gate string, body any, file string, b []byte) (Event, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	ev, err := r.append(kind, gate, "", "", body)
	if err != nil {
		return Event{}, err
	}
	if err := atomicfile.Write(filepath.Join(r.dir, file), b, 0o600); err != nil {
		return ev, fmt.Errorf("mirror %s: %w", file, err)
	}
	return ev, nil
}

// restoreMirrors writes copies that a killed process did not get to: those that
// are missing, or that still hold an earlier object of the log. Anything else is
// left for Verify to name.
func (r *Run) restoreMirrors() error {
	for file, ref := range r.state.mirrors() {
		path := filepath.Join(r.dir, file)
		if !missing(path) {
			digest, _, err := hashFile(path, MaxObject)
			if err != nil || digest == ref.SHA256 || !r.state.mirrored[digest] {
				continue
			}
		}
		b, err := r.Load(ref)
		if err != nil {
			var d *DigestError
			if errors.As(err, &d) || missing(objectPath(r.dir, ref.SHA256)) {
				continue
			}
			return err
		}
		if err := atomicfile.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		if err := atomicfile.Write(path, b, 0o600); err != nil {
			return err
		}
	}
	return nil
}

func isName(s string) bool {
	if s == "" || len(s) > 64 {
		return false
	}
	for i, c := range s {
		plain := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !plain && (i == 0 || c != '-' && c != '_' && c != '.') {
			return false
		}
	}
	return true
}
