package gates

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/narwhal-fleet/narwhal/attest"
	"github.com/narwhal-fleet/narwhal/gates/record"
)

// PredicateGate is the type of the statement about a passed gate.
const PredicateGate = "https://narwhal-fleet.dev/gate/v1"

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
		Previous: r.previousSeal(state, letter), Evidence: []SealedObject{}, SignedAt: time.Now().UTC(),
	}
	g := state.Gates[letter]
	for _, k := range sortedKeys(g.Evidence) {
		if e := g.Evidence[k]; !e.Stale {
			p.Evidence = append(p.Evidence, SealedObject{Key: k, SHA256: e.Ref.SHA256, Bonds: e.Bonds})
		}
	}
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

// previousSeal is the digest of the seal of the gate before, "" for the first.
func (r *Runner) previousSeal(state record.State, letter string) string {
	at := slices.Index(r.letters(), letter)
	if at <= 0 {
		return ""
	}
	if s := state.Gates[r.letters()[at-1]].Seal; s != nil {
		return s.Ref.SHA256
	}
	return ""
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

// checkSeal verifies one seal against trusted keys and against the line that it names.
func checkSeal(v *attest.Verifier, bundle []byte, s record.Sealed, letter string) (*attest.Public, error) {
	got, err := v.Verify(bundle)
	if err != nil {
		return nil, err
	}
	var p SealedGate
	if err := json.Unmarshal(got.Statement.Predicate, &p); err != nil {
		return nil, fmt.Errorf("read the seal's predicate: %w", err)
	}
	if p.Gate != letter || p.Seq != s.Seq || p.Verdict != record.VerdictPassed {
		return nil, fmt.Errorf("the seal speaks of gate %s, line %d, verdict %s", clean(p.Gate, 8), p.Seq, clean(p.Verdict, 16))
	}
	want := attest.SHA256Subject(subjectName(p.Run, p.Seq), s.Digest)
	if len(got.Statement.Subject) != 1 || got.Statement.Subject[0].Digest["sha256"] != want.Digest["sha256"] || got.Statement.Subject[0].Name != want.Name {
		return nil, fmt.Errorf("the seal is about another record")
	}
	return got.Key, nil
}
