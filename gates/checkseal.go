package gates

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/narwhal-fleet/narwhal/attest"
	"github.com/narwhal-fleet/narwhal/gates/record"
)

// checkSeal verifies one seal against trusted signers and against the line that it names.
func checkSeal(v *attest.Verifier, trust attest.Signers, bundle []byte, s record.Seal, name string) (*attest.Verified, error) {
	got, err := v.Verify(bundle)
	if err != nil {
		return nil, err
	}
	if err := trust.Allow(got, name); err != nil {
		return nil, err
	}
	var p SealedGate // a rollback's predicate has run and seq in the same places
	if err := json.Unmarshal(got.Statement.Predicate, &p); err != nil {
		return nil, fmt.Errorf("read the seal's predicate: %w", err)
	}
	want := PredicateGate
	if name == sealRollbackName {
		want, p.Gate, p.Verdict = PredicateRollback, name, record.VerdictPassed
	}
	if got.Statement.PredicateType != want || p.Gate != name || p.Seq != s.Seq || p.Verdict != record.VerdictPassed {
		return nil, fmt.Errorf("the seal speaks of gate %s, line %d, verdict %s", clean(p.Gate, 8), p.Seq, clean(p.Verdict, 16))
	}
	subject := attest.SHA256Subject(subjectName(p.Run, p.Seq), s.Digest)
	if len(got.Statement.Subject) != 1 || got.Statement.Subject[0].Digest["sha256"] != subject.Digest["sha256"] || got.Statement.Subject[0].Name != subject.Name {
		return nil, fmt.Errorf("the seal is about another record")
	}
	return got, nil
}

// checkSealed compares what a verified seal says with the record at its moment: run and
// fleet, and of a gate the seal before it and the evidence with its bonds.
func checkSealed(letters []string, state record.State, name string, predicate json.RawMessage) error {
	var p SealedGate
	if err := json.Unmarshal(predicate, &p); err != nil {
		return fmt.Errorf("read the seal's predicate: %w", err)
	}
	switch {
	case p.Run != state.Run || p.Fleet != state.FleetName:
		return fmt.Errorf("the seal is about run %s of fleet %s", clean(p.Run, 64), clean(p.Fleet, 64))
	case name == sealRollbackName:
		return nil
	case p.Previous != previousSeal(letters, state, name):
		return fmt.Errorf("the seal does not follow that of the gate before")
	case !bytes.Equal(mustJSON(p.Evidence), mustJSON(sealedObjects(state.Gates[name]))):
		return fmt.Errorf("the seal lists other evidence than the record")
	}
	return nil
}
