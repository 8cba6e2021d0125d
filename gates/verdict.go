package gates

import (
	"fmt"
	"slices"

	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/internal/problem"
)

// judge asks the gate and adds what no gate may overlook: missing evidence.
func (r *Runner) judge(g Gate, errs []StepError) (string, []record.Finding) {
	return Verdict(g, r.view(nil), errs)
}

// Verdict is passed only when nothing is found but notes and nothing is missing. Findings
// of the gate make it failed; missing evidence alone makes it inconclusive.
func Verdict(g Gate, v View, errs []StepError) (string, []record.Finding) {
	var missing []record.Finding
	for _, k := range g.Expect(v.Fleet) {
		if _, err := v.Evidence(k); err != nil {
			missing = append(missing, record.Finding{Code: "evidence-missing", Evidence: string(k), Message: err.Error(), Hint: "the same command makes it"})
		}
	}
	for _, e := range errs {
		hint := hintOf(e.Err)
		if hint == "" {
			hint = fmt.Sprintf("narwhal gate log --gate %s shows what came before; the same command goes on from here", g.Info().Letter)
		}
		missing = append(missing, record.Finding{Code: "step-failed", Host: e.Step.Host, Engine: e.Step.Engine, Message: fmt.Sprintf("%s: %v", e.Step.ID, e.Err), Hint: hint})
	}
	findings := g.Judge(v)
	all := append(findings, missing...)
	switch {
	case slices.ContainsFunc(findings, isFault):
		return record.VerdictFailed, all
	case len(missing) > 0:
		return record.VerdictInconclusive, all
	}
	return record.VerdictPassed, all
}

func isFault(f record.Finding) bool { return !f.Note }

// unpassed turns a verdict into what the command reports.
func (r *Runner) unpassed(out Outcome, res GateOutcome) (Outcome, error) {
	st := r.Record.State().Gates[res.Info.Letter]
	out.Status = problem.FailedGate
	if st.Verdict == record.VerdictInconclusive {
		out.Status = problem.Degraded
		if len(res.Errors) > 0 {
			out.Status = statusOf(res.Errors)
		}
	}
	others := slices.ContainsFunc(st.Findings, func(f record.Finding) bool { return !f.Note && f.Code != "evidence-missing" })
	for _, f := range st.Findings {
		if f.Note || f.Code == "evidence-missing" && (len(res.Errors) > 0 || others) {
			continue // a note was told, and a symptom's cause is listed
		}
		text := f.Message
		if text == "" {
			text = fmt.Sprintf("%s: got %s, want %s", f.Code, f.Got, f.Want)
		}
		out.Errors = append(out.Errors, &problem.Problem{
			Status: out.Status, Code: f.Code, Message: fmt.Sprintf("gate %s: %s", res.Info.Letter, text), Hint: f.Hint,
			Gate: res.Info.Letter, Host: f.Host, Engine: f.Engine, Evidence: f.Evidence, Got: f.Got, Want: f.Want,
		})
	}
	return out, nil
}

// fail classifies an error that ended the run and gives it a hint where one is known.
func (r *Runner) fail(out Outcome, err error) (Outcome, error) {
	out.Status = StatusOf(err)
	if problem.All(err) == nil {
		err = problem.Wrap(out.Status, "operation_failed", "run the gates", err, hintOf(err))
	}
	return out, err
}
