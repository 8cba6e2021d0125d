package gates

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/internal/problem"
)

func TestApproval(t *testing.T) {
	t.Run("nobody", func(t *testing.T) {
		r := newRig(t)
		run, end := r.open()
		run.Approve = nil
		out, err := run.Run(t.Context(), Options{})
		end()
		if out.Status != problem.Refused || problem.StatusOf(err) != problem.Refused {
			t.Fatalf("got %v, %v", out.Status, err)
		}
		equal(t, "calls", r.world.took(), []string{"probe"})
		if s := r.state(); s.Gates["A"].State != record.VerdictPassed || s.Gates["C"].State != "" {
			t.Errorf("A is %q, C is %q", s.Gates["A"].State, s.Gates["C"].State)
		}
	})
	t.Run("refused", func(t *testing.T) {
		r := newRig(t)
		run, end := r.open()
		var asked []string
		run.Approve = func(i Info, p Plan) error {
			asked = append(asked, i.Letter)
			return problem.New(problem.Refused, "no", "not this one", "")
		}
		out, err := run.Run(t.Context(), Options{})
		end()
		if out.Status != problem.Refused || err == nil || len(asked) != 1 || asked[0] != "C" {
			t.Fatalf("got %v, %v, asked for %v", out.Status, err, asked)
		}
		if got := r.kinds(record.KindIntent); len(got) != 0 {
			t.Errorf("intents %v", got)
		}
	})
	t.Run("allowed by policy", func(t *testing.T) {
		r := newRig(t)
		r.fleet.Deploy.Policy.Allow = []string{"observe", "mutate"}
		run, end := r.open()
		run.Approve = nil
		out, err := run.Run(t.Context(), Options{})
		end()
		if err != nil || out.Status != problem.Success {
			t.Fatalf("got %v, %v", out.Status, err)
		}
	})
}

func TestPlanDigest(t *testing.T) {
	r := newRig(t)
	run, end := r.open()
	f, err := run.Forecast(t.Context(), Options{})
	end()
	if err != nil || len(f.Gates) != 2 {
		t.Fatalf("forecast %+v, %v", f, err)
	}
	if got := r.world.took(); len(got) != 0 {
		t.Errorf("a forecast of a fresh run asked %v", got)
	}
	if s := r.state(); s.Seq != 1 {
		t.Errorf("a forecast of a fresh run wrote %d events", s.Seq-1)
	}

	out, err := r.run(t.Context(), Options{PlanDigest: strings.Repeat("0", 64)})
	if out.Status != problem.Refused || err == nil {
		t.Fatalf("another digest: %v, %v", out.Status, err)
	}
	if out, err := r.run(t.Context(), Options{PlanDigest: f.Digest[:3]}); err == nil || out.Status != problem.Invalid {
		t.Fatalf("three digits: %v, %v", out.Status, err)
	}
	if got := r.kinds(record.KindStarted); len(got) != 0 {
		t.Fatalf("a refused plan began: %v", got)
	}
	r.pass(Options{PlanDigest: f.Digest})
	if s := r.state(); s.Plan.Digest != f.Digest || s.Plan.Steps != 5 {
		t.Errorf("recorded plan %+v, want %s", s.Plan, f.Digest)
	}
	var plans []Plan
	b, err := os.ReadFile(filepath.Join(r.dir, record.PlanFile))
	if err != nil || json.Unmarshal(b, &plans) != nil || len(plans) != 2 {
		t.Errorf("plan.json: %v, %d plans", err, len(plans))
	}

	// The fleet changes between plan and run.
	r.fleet.Model = "other"
	if out, err := r.run(t.Context(), Options{PlanDigest: f.Digest}); err == nil || out.Status != problem.Refused {
		t.Errorf("a changed fleet under the old digest: %v, %v", out.Status, err)
	}
	r.verify()
}
