package gates

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/narwhal-fleet/narwhal/attest"
	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates/record"
)

// Verification is what an offline look at a record found.
type Verification struct {
	Run      string    `json:"run"`
	Events   int       `json:"events"`
	Seals    int       `json:"seals"`
	Objects  int       `json:"objects"`
	Signer   string    `json:"signer"` // hint of the key, or the identity; "" without a seal
	Problems []Trouble `json:"problems"`
	Notices  []Trouble `json:"notices"`
}

// Trouble is one thing that does not hold.
type Trouble struct {
	Code    string `json:"code"`
	File    string `json:"file"`
	Line    int    `json:"line,omitempty"`
	Gate    string `json:"gate,omitempty"`
	Message string `json:"message"`
}

// Verify checks a run's folder offline: chain and objects, signatures against the
// trusted keys, and each verdict recomputed from its evidence.
func Verify(dir string, pipeline []Gate, trust []*attest.Public) (Verification, error) {
	return VerifyBy(dir, pipeline, attest.SignersOf(trust))
}

// VerifyBy is Verify with signers of whom each may seal certain gates.
func VerifyBy(dir string, pipeline []Gate, trust attest.Signers) (Verification, error) {
	rep, err := record.Verify(dir)
	if err != nil {
		return Verification{}, err
	}
	v := Verification{Run: rep.Run, Events: rep.Events, Objects: rep.Objects, Problems: []Trouble{}, Notices: []Trouble{}}
	for _, p := range rep.Problems {
		v.Problems = append(v.Problems, Trouble{Code: p.Code, File: p.File, Line: p.Line, Message: p.Message})
	}
	for _, p := range rep.Notices {
		v.Notices = append(v.Notices, Trouble{Code: p.Code, File: p.File, Message: p.Message})
	}
	verifier := v.seals(dir, rep, trust)
	snap, err := record.Read(dir)
	if err != nil {
		return v, nil // the chain's own problem is listed
	}
	v.unsealed(snap, verifier != nil)
	v.replay(snap, pipeline, verifier, trust, newest(rep))
	return v, nil
}

func (v *Verification) add(code, file, gate, format string, args ...any) {
	v.Problems = append(v.Problems, Trouble{Code: code, File: file, Gate: gate, Message: fmt.Sprintf(format, args...)})
}

// newest lists the seq of the newest seal of each name.
func newest(rep record.Report) map[int64]bool {
	out := map[int64]bool{}
	for _, s := range rep.Seals {
		out[s.Sealed.At] = true
	}
	return out
}

// seals checks each name's newest seal. It returns nil when nothing can be verified.
func (v *Verification) seals(dir string, rep record.Report, trust attest.Signers) *attest.Verifier {
	if len(trust.List) == 0 {
		if len(rep.Seals) > 0 {
			v.add("no_trust", "", "", "no key is trusted, so no seal can be verified")
		}
		return nil
	}
	verifier, err := attest.NewVerifier(trust.Policy([]string{PredicateGate, PredicateRollback}))
	if err != nil {
		v.add("no_trust", "", "", "%v", err)
		return nil
	}
	for _, s := range rep.Seals {
		b, err := readSeal(filepath.Join(dir, s.File))
		if err == nil {
			var got *attest.Verified
			if got, err = checkSeal(verifier, trust, b, s.Sealed.Seal, s.Name); err == nil {
				v.Seals++
				v.Signer = got.Signer()
				continue
			}
		}
		v.add("seal_unverified", s.File, s.Name, "seal of gate %s: %v", s.Name, err)
	}
	return verifier
}

// unsealed tells of gates that passed and that nobody signed. Only the one at the end may be so, where the
// run was cut off; a gate is signed before anything is done for another one.
func (v *Verification) unsealed(snap *record.Snapshot, vouched bool) {
	passed, worked := map[string]int64{}, map[string]int64{}
	for _, ev := range snap.Events {
		switch ev.Kind {
		case record.KindStarted, record.KindPlan, record.KindIntent, record.KindOutcome, record.KindEvidence, record.KindVerdict, record.KindSeal:
			worked[ev.Gate] = ev.Seq
		}
		if ev.Kind == record.KindVerdict {
			passed[ev.Gate] = ev.Seq
		}
	}
	delete(worked, "")
	delete(worked, sealRollbackName)
	for _, letter := range sortedKeys(snap.State.Gates) {
		g := snap.State.Gates[letter]
		if g.State != record.VerdictPassed || g.Seal != nil {
			continue
		}
		on := false
		for other, seq := range worked {
			on = on || other != letter && seq > passed[letter]
		}
		if vouched && on {
			v.add("unsealed", record.LogFile, letter, "gate %s passed and nobody signed it, although the run went on", letter)
			continue
		}
		v.Notices = append(v.Notices, Trouble{Code: "unsealed", Gate: letter, Message: "gate " + letter + " passed and is not signed: nobody vouches for it"})
	}
}

// readSeal reads a seal's file; what is no small regular file is not opened.
func readSeal(path string) ([]byte, error) {
	st, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() || st.Size() > attest.MaxBundle {
		return nil, fmt.Errorf("it is not a regular file of at most %d bytes", attest.MaxBundle)
	}
	return os.ReadFile(path)
}

// replay folds the log again, judges every verdict from the evidence of its moment, and
// compares every seal, older ones too, with the record of its moment.
func (v *Verification) replay(snap *record.Snapshot, pipeline []Gate, verifier *attest.Verifier, trust attest.Signers, newest map[int64]bool) {
	byLetter := map[string]Gate{}
	var letters []string
	for _, g := range pipeline {
		byLetter[g.Info().Letter] = g
		letters = append(letters, g.Info().Letter)
	}
	var state record.State
	for _, ev := range snap.Events {
		if ev.Kind == record.KindVerdict {
			v.verdict(byLetter[ev.Gate], ev, state, snap.Load)
		}
		if ev.Kind == record.KindSeal && verifier != nil {
			v.sealed(verifier, trust, letters, ev, state, snap.Load, newest[ev.Seq])
		}
		state = record.Fold(state, ev)
	}
}

// sealed checks one seal event. The newest seal's signature is checked where its file is.
func (v *Verification) sealed(verifier *attest.Verifier, trust attest.Signers, letters []string, ev record.Event, state record.State, load func(record.Ref) ([]byte, error), newest bool) {
	said, err := record.Body[record.Seal](ev)
	if err != nil {
		return // the chain's own problem is listed
	}
	b, err := load(said.Ref)
	if err != nil {
		return // the missing object is listed
	}
	got, err := checkSeal(verifier, trust, b, said, ev.Gate)
	if err == nil {
		err = checkSealed(letters, state, ev.Gate, got.Statement.Predicate)
	} else if newest {
		return
	}
	if err != nil {
		v.add("seal_unverified", record.LogFile, ev.Gate, "line %d: seal of %s: %v", ev.Seq, ev.Gate, err)
	}
}

func (v *Verification) verdict(g Gate, ev record.Event, state record.State, load func(record.Ref) ([]byte, error)) {
	var said record.Verdict
	if g == nil || json.Unmarshal(ev.Body, &said) != nil {
		v.add("verdict_unknown", record.LogFile, ev.Gate, "line %d: verdict of a gate that this version does not know", ev.Seq)
		return
	}
	view, err := ViewAt(state, load)
	if err != nil {
		v.add("inputs_missing", record.LogFile, ev.Gate, "line %d: %v", ev.Seq, err)
		return
	}
	again, _ := Verdict(g, view, nil)
	ok := again == said.State || (said.State == record.VerdictInconclusive && again == record.VerdictPassed)
	if !ok {
		v.add("verdict_differs", record.LogFile, ev.Gate, "line %d: gate %s says %s, its evidence says %s", ev.Seq, ev.Gate, said.State, again)
	}
	if err := expects(ev.Gate, said, state, load); err != nil {
		v.add("verdict_differs", record.LogFile, ev.Gate, "line %d: gate %s: %v", ev.Seq, ev.Gate, err)
	}
}

// ViewAt is what a gate saw in a recorded state, with the inputs frozen then.
func ViewAt(state record.State, load func(record.Ref) ([]byte, error)) (View, error) {
	view := View{Run: state.Run, Facts: state.Facts, state: state, load: load}
	var in struct {
		Fleet   fleet.Fleet `json:"fleet"`
		Release Release     `json:"release"`
	}
	if err := view.Decode("A/inputs", &in); err == nil {
		view.Fleet, view.Release = in.Fleet, in.Release
		return view, nil
	}
	b, err := load(state.Fleet)
	if err != nil {
		return view, fmt.Errorf("read the frozen fleet: %w", err)
	}
	if err := json.Unmarshal(b, &view.Fleet); err != nil {
		return view, fmt.Errorf("read the frozen fleet: %w", err)
	}
	return view, nil
}
