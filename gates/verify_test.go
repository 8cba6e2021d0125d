package gates

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/narwhal-fleet/narwhal/attest"
	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates/record"
)

// codes verifies and lists what does not hold.
func codes(t *testing.T, r *rig, trust ...*attest.Public) []string {
	t.Helper()
	v, err := Verify(r.dir, r.gates, trust)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, p := range v.Problems {
		out = append(out, p.Code)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func trusted() *attest.Public { return testSigner().Public() }

func TestVerifyOfACopiedRecord(t *testing.T) {
	r := newRig(t)
	r.pass(Options{})
	copied := filepath.Join(t.TempDir(), "elsewhere")
	if err := os.CopyFS(copied, os.DirFS(r.dir)); err != nil {
		t.Fatal(err)
	}
	r.dir = copied
	if v := r.verify(); v.Run != "run-1" || v.Seals != 2 || v.Events < 10 {
		t.Errorf("verification %+v", v)
	}
}

func TestVerifyTrust(t *testing.T) {
	r := newRig(t)
	r.pass(Options{})
	equal(t, "nobody trusted", codes(t, r), []string{"no_trust"})
	private, _, err := attest.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	other, err := attest.LoadSigner(private, nil)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "another key", codes(t, r, other.Public()), []string{"seal_unverified"})
	equal(t, "both keys", codes(t, r, other.Public(), trusted()), nil)
}

func TestVerifyChangedSealFile(t *testing.T) {
	r := newRig(t)
	r.pass(Options{})
	a := filepath.Join(r.dir, record.SealDir, "A.sigstore.json")
	c := filepath.Join(r.dir, record.SealDir, "C.sigstore.json")
	b, err := os.ReadFile(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(a, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := codes(t, r, trusted()); !slices.Contains(got, "seal_unverified") || !slices.Contains(got, record.ProblemDigest) {
		t.Errorf("problems %v", got)
	}
}

func TestVerifyChangedLine(t *testing.T) {
	r := newRig(t)
	r.pass(Options{})
	log := filepath.Join(r.dir, record.LogFile)
	b, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.Replace(string(b), "boot-1", "boot-2", 1)
	if changed == string(b) {
		t.Fatal("nothing to change")
	}
	if err := os.WriteFile(log, []byte(changed), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := codes(t, r, trusted()); len(got) == 0 {
		t.Error("a changed line goes unnoticed")
	}
}

// forge appends events as a runner with a bad mind would: chain and objects are right.
func forge(t *testing.T, r *rig, do func(*record.Run)) {
	t.Helper()
	rec, err := record.Open(r.dir, record.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer rec.Close()
	do(rec)
}

func mustAppend(t *testing.T, rec *record.Run, kind record.Kind, gate string, body any) {
	t.Helper()
	if _, err := rec.Append(kind, gate, "", "", body); err != nil {
		t.Fatal(err)
	}
}

// expecting appends a verdict of gate A that says what it expects.
func expecting(state, list string) func(*testing.T, *rig, *record.Run) {
	return func(t *testing.T, _ *rig, rec *record.Run) {
		t.Helper()
		ref, err := rec.Store("application/json", []byte(list))
		if err != nil {
			t.Fatal(err)
		}
		mustAppend(t, rec, record.KindVerdict, "A", record.Verdict{State: state, Expects: &ref})
	}
}

// TestVerdictsSayWhatTheyExpect reads the list beside each verdict, also of a gate that did not pass.
func TestVerdictsSayWhatTheyExpect(t *testing.T) {
	r := newRig(t)
	r.gates = []Gate{first{}, wordy{found: []record.Finding{{Code: "fault", Hint: "mend it"}}}}
	if _, err := r.run(t.Context(), Options{}); err != nil {
		t.Fatal(err)
	}
	snap, err := record.Read(r.dir)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, ev := range snap.Events {
		if ev.Kind != record.KindVerdict {
			continue
		}
		said, err := record.Body[record.Verdict](ev)
		if err != nil || said.Expects == nil {
			t.Fatalf("%s: %+v, %v", ev.Gate, said, err)
		}
		b, err := snap.Load(*said.Expects)
		if err != nil {
			t.Fatal(err)
		}
		got[ev.Gate] = said.State + " " + string(b)
	}
	if got["A"] != `passed ["A/host/h1","A/inputs"]` || got["C"] != `failed ["C/launch/e","C/live/e"]` || len(got) != 2 {
		t.Errorf("verdicts %v", got)
	}
	r.verify()
}

func TestVerifyRecomputesVerdicts(t *testing.T) {
	for name, c := range map[string]struct {
		forge func(*testing.T, *rig, *record.Run)
		want  []string
	}{
		"passed without evidence": {func(t *testing.T, _ *rig, rec *record.Run) {
			mustAppend(t, rec, record.KindVerdict, "C", record.Verdict{State: record.VerdictPassed})
		}, []string{"verdict_differs"}},
		"passed against its finding": {func(t *testing.T, _ *rig, rec *record.Run) {
			ref, err := rec.Store("text/plain", []byte("boot=bad"))
			if err != nil {
				t.Fatal(err)
			}
			mustAppend(t, rec, record.KindEvidence, "A", record.Evidence{Key: "A/host/h1", Ref: ref})
			mustAppend(t, rec, record.KindVerdict, "A", record.Verdict{State: record.VerdictPassed})
		}, []string{"verdict_differs"}},
		"failed without a finding": {func(t *testing.T, _ *rig, rec *record.Run) {
			mustAppend(t, rec, record.KindVerdict, "A", record.Verdict{State: record.VerdictFailed})
		}, []string{"verdict_differs"}},
		"inconclusive although nothing is missing": {func(t *testing.T, _ *rig, rec *record.Run) { // a step may have failed
			mustAppend(t, rec, record.KindVerdict, "A", record.Verdict{State: record.VerdictInconclusive})
		}, nil},
		"passed on stale evidence": {func(t *testing.T, _ *rig, rec *record.Run) {
			mustAppend(t, rec, record.KindStale, "A", record.Stale{Key: "A/host/h1", Because: "x"})
			mustAppend(t, rec, record.KindVerdict, "A", record.Verdict{State: record.VerdictPassed})
		}, []string{"verdict_differs"}},
		"passed with what it expects":               {expecting(record.VerdictPassed, `["A/host/h1","A/inputs"]`), nil},
		"passed without what it expects":            {expecting(record.VerdictPassed, `["A/host/h1","A/inputs","A/more/h1"]`), []string{"verdict_differs"}},
		"inconclusive without what it expects":      {expecting(record.VerdictInconclusive, `["A/host/h1","A/inputs","A/more/h1"]`), nil},
		"passed, expecting evidence of another":     {expecting(record.VerdictPassed, `["A/host/h1","C/live/e"]`), []string{"verdict_differs"}},
		"passed, expecting in no order":             {expecting(record.VerdictPassed, `["A/inputs","A/host/h1"]`), []string{"verdict_differs"}},
		"passed, expecting one twice":               {expecting(record.VerdictPassed, `["A/inputs","A/inputs"]`), []string{"verdict_differs"}},
		"inconclusive, expecting something else":    {expecting(record.VerdictInconclusive, `{"A/inputs":1}`), []string{"verdict_differs"}},
		"inconclusive, expecting something unknown": {expecting(record.VerdictInconclusive, `null`), []string{"verdict_differs"}},
		"passed on stale evidence that it expects": {func(t *testing.T, r *rig, rec *record.Run) {
			ref, err := rec.Store("text/plain", []byte("more"))
			if err != nil {
				t.Fatal(err)
			}
			mustAppend(t, rec, record.KindEvidence, "A", record.Evidence{Key: "A/more/h1", Ref: ref})
			mustAppend(t, rec, record.KindStale, "A", record.Stale{Key: "A/more/h1", Because: "x"})
			expecting(record.VerdictPassed, `["A/host/h1","A/inputs","A/more/h1"]`)(t, r, rec)
		}, []string{"verdict_differs"}},
		"a gate that nobody knows": {func(t *testing.T, _ *rig, rec *record.Run) {
			mustAppend(t, rec, record.KindVerdict, "Z", record.Verdict{State: record.VerdictPassed})
		}, []string{"verdict_unknown"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.pass(Options{To: "A"})
			forge(t, r, func(rec *record.Run) { c.forge(t, r, rec) })
			equal(t, "problems", codes(t, r, trusted()), c.want)
		})
	}
}

// TestVerifySealContents signs, with the trusted key, what the record does not say.
func TestVerifySealContents(t *testing.T) {
	for name, c := range map[string]struct {
		gate   string
		change func(*SealedGate, *attest.Statement)
		want   []string
	}{
		"as it is":        {"C", func(*SealedGate, *attest.Statement) {}, nil},
		"another run":     {"C", func(p *SealedGate, st *attest.Statement) { p.Run = "run-2" }, []string{"seal_unverified"}},
		"another fleet":   {"C", func(p *SealedGate, st *attest.Statement) { p.Fleet = "other" }, []string{"seal_unverified"}},
		"another gate":    {"C", func(p *SealedGate, st *attest.Statement) { p.Gate = "A" }, []string{"seal_unverified"}},
		"another verdict": {"C", func(p *SealedGate, st *attest.Statement) { p.Verdict = "failed" }, []string{"seal_unverified"}},
		"another line":    {"C", func(p *SealedGate, st *attest.Statement) { p.Seq-- }, []string{"seal_unverified"}},
		"no predecessor":  {"C", func(p *SealedGate, st *attest.Statement) { p.Previous = "" }, []string{"seal_unverified"}},
		"less evidence":   {"C", func(p *SealedGate, st *attest.Statement) { p.Evidence = p.Evidence[:1] }, []string{"seal_unverified"}},
		"another bond":    {"C", func(p *SealedGate, st *attest.Statement) { p.Evidence[1].Bonds = nil }, []string{"seal_unverified"}},
		"another digest": {"C", func(p *SealedGate, st *attest.Statement) {
			st.Subject[0] = attest.SHA256Subject(st.Subject[0].Name, strings.Repeat("0", 64))
		}, []string{"seal_unverified"}},
		"another name":            {"C", func(p *SealedGate, st *attest.Statement) { st.Subject[0].Name = "x" }, []string{"seal_unverified"}},
		"a rollback's":            {"C", func(p *SealedGate, st *attest.Statement) { st.PredicateType = PredicateRollback }, []string{"seal_unverified"}},
		"a gate's, of a rollback": {"rollback", func(p *SealedGate, st *attest.Statement) {}, []string{"seal_unverified"}},
	} {
		for _, newest := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				r := newRig(t)
				r.pass(Options{})
				forge(t, r, func(rec *record.Run) {
					state := rec.State()
					seq, digest := rec.Head()
					p := SealedGate{Run: state.Run, Fleet: state.FleetName, Gate: "C", Verdict: record.VerdictPassed, Seq: seq,
						Previous: previousSeal([]string{"A", "C"}, state, "C"), Evidence: sealedObjects(state.Gates["C"])}
					st := attest.Statement{Subject: []attest.Subject{attest.SHA256Subject(subjectName(state.Run, seq), digest)}, PredicateType: PredicateGate}
					c.change(&p, &st)
					st.Predicate = mustJSON(p)
					bundle, err := attest.Sign(testSigner(), st)
					if err != nil {
						t.Fatal(err)
					}
					if _, err := rec.Seal(c.gate, seq, digest, bundle); err != nil {
						t.Fatal(err)
					}
				})
				if !newest { // the runner seals again behind it
					if c.gate == "rollback" {
						return
					}
					r.pass(Options{Only: "C", Again: map[string]bool{"C": true}})
				}
				equal(t, "problems", codes(t, r, trusted()), c.want)
			})
		}
	}
}

func TestVerifyUnsealed(t *testing.T) {
	r := newRig(t)
	run, end := r.open()
	run.Signer = nil
	if _, err := run.Run(t.Context(), Options{}); err != nil {
		t.Fatal(err)
	}
	end()
	// The last one may be unsigned, for a run may be cut off; who trusts a key takes no other.
	for _, c := range []struct {
		trust    []*attest.Public
		problems []string
		notices  string
	}{{[]*attest.Public{trusted()}, []string{"unsealed"}, "C"}, {nil, nil, "A C"}} {
		equal(t, "problems", codes(t, r, c.trust...), c.problems)
		v, err := Verify(r.dir, r.gates, c.trust)
		var of []string
		for _, n := range v.Notices {
			of = append(of, n.Gate)
		}
		if got := strings.Join(of, " "); err != nil || v.Seals != 0 || got != c.notices {
			t.Errorf("%d keys: %q, %+v, %v", len(c.trust), got, v, err)
		}
	}
	r.pass(Options{}) // with a key again
	if v := r.verify(); len(v.Notices) != 0 || v.Seals != 2 {
		t.Errorf("after sealing: %+v", v)
	}
}

func TestVerifyOfNothing(t *testing.T) {
	if _, err := Verify(filepath.Join(t.TempDir(), "none"), nil, nil); err == nil {
		t.Error("a folder that is not there was verified")
	}
	v, err := Verify(t.TempDir(), nil, nil)
	if err != nil || len(v.Problems) == 0 {
		t.Errorf("an empty folder: %+v, %v", v, err)
	}
}

// TestVerifyUsesTheInputsOfTheMoment judges an old verdict by the fleet of its time.
func TestVerifyUsesTheInputsOfTheMoment(t *testing.T) {
	r := newRig(t)
	r.gates = []Gate{first{}, choosy{}}
	r.pass(Options{})
	r.fleet.Model = "m2"
	out, err := r.run(t.Context(), Options{})
	if err != nil || out.Status == "success" {
		t.Fatalf("%v, %v", out.Status, err)
	}
	r.verify()
}

// choosy is a third gate that likes one model.
type choosy struct{ third }

func (choosy) Judge(v View) []record.Finding {
	if v.Fleet.Model != "m" {
		return []record.Finding{{Code: "model", Message: "another model"}}
	}
	return nil
}

func TestInputsFacts(t *testing.T) {
	f := twoHosts()
	a := Inputs(f, Release{SHA256: "r"})
	b, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	var back fleet.Fleet
	if err := json.Unmarshal(b, &back); err != nil {
		t.Fatal(err)
	}
	for k, v := range Inputs(back, Release{SHA256: "r"}) {
		if a[k] != v {
			t.Errorf("fact %s changes when the fleet is read back", k)
		}
	}
	f.Deploy = nil
	if got := Inputs(f, Release{}); got["fleet/model"] != "m" || got["fleet/trial"] != "" {
		t.Errorf("without deploy: %v", got)
	}
	if a["fleet/runtime"] != Inputs(f, Release{})["fleet/runtime"] {
		t.Error("deploy counts as what the router reads")
	}
}

// TestVerifyByScope trusts a key with some gates alone.
func TestVerifyByScope(t *testing.T) {
	r := newRig(t)
	r.pass(Options{})
	for name, c := range map[string]struct {
		scope []string
		want  []string
	}{
		"both gates": {[]string{"A", "C"}, nil},
		"one gate":   {[]string{"A"}, []string{"seal_unverified"}},
		"everything": {nil, nil},
	} {
		v, err := VerifyBy(r.dir, r.gates, attest.Signers{List: []attest.TrustedSigner{{Name: "o", Key: trusted(), Scope: c.scope}}})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, p := range v.Problems {
			got = append(got, p.Code)
			if p.Gate != "C" || !strings.Contains(p.Message, "may not sign") {
				t.Errorf("%s: problem %+v", name, p)
			}
		}
		equal(t, name, got, c.want)
	}
}
