package gates

import (
	"fmt"
	"slices"
	"time"

	"github.com/narwhal-fleet/narwhal/attest"
	"github.com/narwhal-fleet/narwhal/gates/record"
)

// PredicateGate is the type of the statement about a passed gate.
const PredicateGate = "https://github.com/narwhal-fleet/narwhal/gate/v1"

// SealedGate is the predicate: what a passed gate rests on. SignedAt is the signer's
// claim; a plain key proves no time.
type SealedGate struct {
	Run      string         `json:"run"`
	Fleet    string         `json:"fleet"`
	Gate     string         `json:"gate"`
	Verdict  string         `json:"verdict"`
	Seq      int64          `json:"seq"` // of the log line that is the subject
	Previous string         `json:"previous,omitempty"`
	Evidence []SealedObject `json:"evidence"`
	SignedAt time.Time      `json:"signed_at"`
}

// SealedObject is one piece of evidence with the facts that it is bound to.
type SealedObject struct {
	Key    record.Key        `json:"key"`
	SHA256 string            `json:"sha256"`
	Bonds  map[string]string `json:"bonds,omitempty"`
}

// seal signs the record's head for a gate that has just passed.
func (r *Runner) seal(letter string) error {
	if r.Signer == nil {
		return nil
	}
	state := r.Record.State()
	seq, digest := r.Record.Head()
	p := SealedGate{
		Run: state.Run, Fleet: state.FleetName, Gate: letter, Verdict: state.Gates[letter].Verdict, Seq: seq,
		Previous: previousSeal(r.letters(), state, letter), SignedAt: time.Now().UTC(),
	}
	p.Evidence = sealedObjects(state.Gates[letter])
	bundle, err := attest.Sign(r.Signer, attest.Statement{
		Subject:       []attest.Subject{attest.SHA256Subject(subjectName(state.Run, seq), digest)},
		PredicateType: PredicateGate, Predicate: mustJSON(p),
	})
	if err != nil {
		return fmt.Errorf("seal gate %s: %w", letter, err)
	}
	if err := r.takeUp(); err != nil {
		return err
	}
	if _, err := r.Record.Seal(letter, seq, digest, bundle); err != nil {
		return writeError(err)
	}
	return nil
}

func subjectName(run string, seq int64) string { return fmt.Sprintf("%s/log.jsonl#%d", run, seq) }

// PredicateRollback is the type of the statement about an ended rollback.
const PredicateRollback = "https://github.com/narwhal-fleet/narwhal/rollback/v1"

// sealRollbackName is where the newest rollback's seal lies beside those of the gates.
const sealRollbackName = "rollback"

// SealedRollback is the predicate: what a rollback left. Seq and SignedAt as in SealedGate.
type SealedRollback struct {
	Run   string `json:"run"`
	Fleet string `json:"fleet"`
	Seq   int64  `json:"seq"`
	RollbackResult
	SignedAt time.Time `json:"signed_at"`
}

// sealRollback signs the record's head after a rollback has ended.
func (r *Runner) sealRollback(res RollbackResult) error {
	if r.Signer == nil {
		return nil
	}
	state := r.Record.State()
	seq, digest := r.Record.Head()
	p := SealedRollback{Run: state.Run, Fleet: state.FleetName, Seq: seq, RollbackResult: res, SignedAt: time.Now().UTC()}
	bundle, err := attest.Sign(r.Signer, attest.Statement{
		Subject:       []attest.Subject{attest.SHA256Subject(subjectName(state.Run, seq), digest)},
		PredicateType: PredicateRollback, Predicate: mustJSON(p),
	})
	if err != nil {
		return fmt.Errorf("seal the rollback: %w", err)
	}
	if _, err := r.Record.Seal(sealRollbackName, seq, digest, bundle); err != nil {
		return writeError(err)
	}
	return nil
}

// sealRollbackOnce seals a rollback that was cut off before its seal.
func (r *Runner) sealRollbackOnce(res RollbackResult) error {
	state := r.Record.State()
	if s, ok := state.Seals[sealRollbackName]; ok && state.LastRollback != nil && s.At > state.LastRollback.Seq {
		return nil
	}
	if err := r.takeUp(); err != nil {
		return err
	}
	return r.sealRollback(res)
}

// sealedObjects lists a gate's fresh evidence.
func sealedObjects(g record.Gate) []SealedObject {
	out := []SealedObject{}
	for _, k := range sortedKeys(g.Evidence) {
		if e := g.Evidence[k]; !e.Stale {
			out = append(out, SealedObject{Key: k, SHA256: e.Ref.SHA256, Bonds: e.Bonds})
		}
	}
	return out
}

// previousSeal is the digest of the seal of the gate before, "" for the first.
func previousSeal(letters []string, state record.State, letter string) string {
	at := slices.Index(letters, letter)
	if at <= 0 {
		return ""
	}
	if s := state.Gates[letters[at-1]].Seal; s != nil {
		return s.Ref.SHA256
	}
	return ""
}

// sealLeft signs gates that passed and were cut off before their seal, before other work hides that.
func (r *Runner) sealLeft() error {
	if r.Signer == nil {
		return nil
	}
	for _, letter := range r.letters() {
		if g := r.Record.State().Gates[letter]; g.State == record.VerdictPassed && g.Seal == nil {
			if err := r.seal(letter); err != nil {
				return err
			}
		}
	}
	return nil
}

// reseal signs gates whose predecessor was sealed again, or that passed and were cut
// off before their seal.
func (r *Runner) reseal() error {
	if r.Signer == nil {
		return nil
	}
	var before *record.Sealed
	for _, letter := range r.letters() {
		g := r.Record.State().Gates[letter]
		if g.State != record.VerdictPassed {
			return nil
		}
		if g.Seal == nil || (before != nil && before.At > g.Seal.At) {
			if err := r.seal(letter); err != nil {
				return err
			}
		}
		before = r.Record.State().Gates[letter].Seal
	}
	return nil
}
