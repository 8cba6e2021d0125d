package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/narwhal-fleet/narwhal/runtime/bench"
)

// benchResult is the envelope of bench run and bench report.
type benchResult struct {
	Status string          `json:"status"`
	Data   bench.RunReport `json:"data"`
	Errors []struct {
		Code string `json:"code"`
		Hint string `json:"hint"`
	} `json:"errors"`
}

// bench runs a verb of bench in the fleet's folder.
func (p *plainFleet) bench(want int, args ...string) ran {
	p.t.Helper()
	r := finish(p.t, execCommand(p.bin, p.dir, filepath.Join(p.dir, "state"), append([]string{"bench"}, args...)...))
	if r.code != want {
		p.t.Fatalf("bench %v: exit %d, want %d\n%s\n%s", args, r.code, want, r.out, r.err)
	}
	return r
}

func benchData(t *testing.T, out string) (b benchResult) {
	t.Helper()
	if err := json.Unmarshal([]byte(out), &b); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	return b
}

// servedBench is a router with a journal.
func servedBench(t *testing.T) (p *plainFleet, url, journal string) {
	p = newPlainFleet(t)
	journal = filepath.Join(p.dir, "served.jsonl")
	_, addr := p.serve("--journal", journal)
	return p, "http://" + addr, journal
}

func TestBenchRunReportCompare(t *testing.T) {
	p, url, journal := servedBench(t)
	run := []string{"run", "--url", url, "-f", p.fleet, "--journal", journal, "--rate", "40", "--rate", "80", "--requests", "60", "--mix", "short-chat=2,history=1",
		"--max-input", "300", "--max-output", "6", "--seed", "7", "--warmup", "2", "--sample-every", "2s", "--format", "json"}
	one := benchData(t, p.bench(0, append(run, "--out", "one")...).out)
	if d := one.Data; d.Offered != 120 || d.Completed != 120 || d.Attainment < 0.9 || len(d.Points) != 2 || len(d.ByClass) != 2 || len(d.Diagnostics) != 0 || len(d.Unchecked) != 0 || d.State != "complete" {
		t.Fatalf("%+v", d)
	}
	// The same command offers the same requests: same table, same words.
	p.bench(0, append(run, "--out", "two")...)
	for _, point := range []string{"001", "002"} {
		a, err := os.ReadFile(filepath.Join(p.dir, "one", "points", point, "arrivals.csv"))
		b, errB := os.ReadFile(filepath.Join(p.dir, "two", "points", point, "arrivals.csv"))
		if err != nil || errB != nil || !bytes.Equal(a, b) {
			t.Errorf("point %s: %v, %v, %d and %d bytes", point, err, errB, len(a), len(b))
		}
	}
	for _, name := range []string{"run.json", "report.json", "warmup.jsonl", "points/001/point.json", "points/002/requests.jsonl", "points/002/journal.jsonl", "points/002/samples.jsonl",
		"points/001/before.metrics.txt", "points/001/after.state.json"} {
		if info, err := os.Stat(filepath.Join(p.dir, "one", name)); err != nil || info.Size() == 0 || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	if again := benchData(t, p.bench(0, "report", "one", "--format", "json").out); again.Data.Qualified != one.Data.Qualified || again.Data.TTFT.P95 == nil || *again.Data.TTFT.P95 != *one.Data.TTFT.P95 {
		t.Errorf("reported again: %+v", again.Data.Score)
	}
	if r := p.bench(1, "report", "one", "--ttft", "0.000001", "--attainment", "0.5"); !strings.Contains(r.err, "attainment is 0.00 %") {
		t.Errorf("%s", r.err)
	}
	if r := p.bench(0, "compare", "one", "two"); !strings.Contains(r.out, "pairs") || !strings.Contains(r.out, "batch means") {
		t.Errorf("%s", r.out)
	}
	if r := p.bench(0, "report", "--journal", journal); !strings.Contains(r.out, "attainment") {
		t.Errorf("%s", r.out)
	}
	p.bench(0, "report", "two", "--aiperf", "export")
	for _, name := range bench.AIPerfFiles {
		if _, err := os.Stat(filepath.Join(p.dir, "export", "002", name)); err != nil {
			t.Error(err)
		}
	}
	if r := p.bench(2, append(run, "--out", "one")...); !strings.Contains(r.out, "bench_run_exists") {
		t.Errorf("%s", r.err)
	}
}

func TestBenchClosedLoopPhasesAndReplay(t *testing.T) {
	p, url, journal := servedBench(t)
	common := []string{"--url", url, "--journal", journal, "--max-input", "200", "--max-output", "4", "--format", "json"}
	closed := benchData(t, p.bench(0, append([]string{"run", "--concurrency", "2", "--concurrency", "5", "--requests", "20", "--chat"}, common...)...).out)
	if d := closed.Data; d.Offered != 40 || d.Completed != 40 || d.SLO != (bench.SLO{TTFT: 2, TPOT: 0.1}) || len(d.Diagnostics) != 0 {
		t.Errorf("closed: %+v", d)
	}
	phases := benchData(t, p.bench(0, append([]string{"run", "--phase", "10..60@1s:short-chat", "--phase", "60@500ms:document=1", "--arrivals", "gamma", "--cv", "3"}, common...)...).out)
	if d := phases.Data; len(d.Points) != 1 || len(d.ByClass) != 2 || d.ByClass[0].Class != "document" || d.Offered < 20 || len(d.Diagnostics) != 0 {
		t.Errorf("phases: %+v", d)
	}
	replay := benchData(t, p.bench(0, append([]string{"run", "azure", "--rate", "100", "--requests", "50"}, common...)...).out)
	if d := replay.Data; d.Offered != 50 || len(d.ByClass) != 2 || len(d.Diagnostics) != 0 {
		t.Errorf("replay: %+v", d)
	}
	p.bench(1, append([]string{"run", "--rate", "100", "--requests", "5", "--max-lag", "1ns", "--out", "late"}, common...)...)
	latest := benchData(t, p.bench(0, "report", "--format", "json").out)
	if latest.Data.Run != replay.Data.Run {
		t.Errorf("latest is %s, not %s", latest.Data.Run, replay.Data.Run)
	}
}

// A run that is interrupted keeps what it has, says so, and is no whole run.
func TestBenchInterruptedAndKilled(t *testing.T) {
	p, url, journal := servedBench(t)
	for _, c := range []struct {
		out   string
		sig   syscall.Signal
		code  int
		state string
		says  string
	}{{"stopped", syscall.SIGINT, 130, "partial", "run_partial"}, {"killed", syscall.SIGKILL, -1, "died", "run_died"}} {
		cmd := execCommand(p.bin, p.dir, filepath.Join(p.dir, "state"), "bench", "run", "--url", url, "--journal", journal, "--rate", "50", "--duration", "10m", "--max-output", "4", "--max-input", "100", "--out", c.out)
		var errs outputSoFar
		cmd.Stderr = &errs
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		rows := filepath.Join(p.dir, c.out, "points", "001", "requests.part.jsonl")
		await(t, "rows of the run", func() bool {
			b, err := os.ReadFile(rows)
			return err == nil && bytes.Count(b, []byte("\n")) >= 10
		})
		if c.sig == syscall.SIGINT {
			if r := p.bench(3, "report", c.out, "--format", "json"); benchData(t, r.out).Data.State != "running" {
				t.Errorf("while it runs: %s", r.out)
			}
		}
		if err := cmd.Process.Signal(c.sig); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		if got := cmd.ProcessState.ExitCode(); got != c.code {
			t.Errorf("%s: exit %d\n%s", c.out, got, errs.String())
		}
		r := benchData(t, p.bench(3, "report", c.out, "--format", "json").out)
		if d := r.Data; d.State != c.state || d.Offered < 10 || d.Offered > 20000 || d.Planned() < 25000 || r.Errors[0].Code != c.says {
			t.Errorf("%s: %s, %d offered, %v", c.out, d.State, d.Offered, r.Errors)
		}
		if c.sig == syscall.SIGINT && (len(r.Data.Diagnostics) != 0 || r.Data.Completed != r.Data.Offered) {
			t.Errorf("stopped: %+v, %+v", r.Data.Score, r.Data.Diagnostics)
		}
	}
}

// Somebody else's requests in the journal, and a journal that is cut, are told.
func TestBenchDiagnostics(t *testing.T) {
	p, url, journal := servedBench(t)
	args := []string{"run", "--url", url, "--journal", journal, "--rate", "20", "--duration", "2s", "--max-output", "4", "--max-input", "100", "--format", "json", "--chars-per-token", "4"}
	done := make(chan ran, 1)
	go func() {
		done <- finish(t, execCommand(p.bin, p.dir, filepath.Join(p.dir, "state"), append([]string{"bench"}, append(args, "--out", "other")...)...))
	}()
	rows := filepath.Join(p.dir, "other", "points", "001", "requests.part.jsonl")
	await(t, "rows of the run", func() bool { b, err := os.ReadFile(rows); return err == nil && len(b) > 0 })
	resp, err := http.Post(url+"/v1/completions", "application/json", strings.NewReader(`{"prompt":"a whale","max_tokens":2}`))
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	r := <-done
	codes := func(b benchResult) (out []string) {
		for _, d := range b.Data.Diagnostics {
			out = append(out, d.Code)
		}
		return out
	}
	if got := codes(benchData(t, r.out)); r.code != 3 || !slices.Equal(got, []string{"journal_client_ids_missing"}) {
		t.Errorf("exit %d, %v\n%s", r.code, got, r.err)
	}
	b, err := os.ReadFile(filepath.Join(p.dir, "other", "points", "001", "journal.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	first, rest, _ := bytes.Cut(b, []byte("\n"))
	if err := os.WriteFile(filepath.Join(p.dir, "other", "points", "001", "journal.jsonl"), append([]byte("{oops\n"), rest...), 0o600); err != nil {
		t.Fatal(err)
	}
	got := codes(benchData(t, p.bench(3, "report", "other", "--format", "json").out))
	for _, want := range []string{"journal_parse_error", "client_journal_count", "completed_count", "client_journal_ids", "counter_mismatch"} {
		if !slices.Contains(got, want) {
			t.Errorf("without %s: %v lacks %s", first, got, want)
		}
	}
}

func TestBenchArguments(t *testing.T) {
	p := newPlainFleet(t)
	nobody := "http://127.0.0.1:1"
	for _, c := range []struct {
		args []string
		code int
		hint string
	}{
		{[]string{"run"}, 2, "--rate"},
		{[]string{"run", "--rate", "5", "--concurrency", "3"}, 2, "one of them alone"},
		{[]string{"run", "--rate", "0"}, 2, "above 0"},
		{[]string{"run", "--rate", "x"}, 2, "--help"},
		{[]string{"run", "--concurrency", "0"}, 2, "1 to 100000"},
		{[]string{"run", "--rate", "5", "--mix", "poems=1"}, 2, "--mix"},
		{[]string{"run", "--rate", "5", "--arrivals", "tides"}, 2, "gamma"},
		{[]string{"run", "--rate", "5", "--cv", "3"}, 2, "gamma"},
		{[]string{"run", "--phase", "5@x"}, 2, "10@1m"},
		{[]string{"run", "--rate", "5", "--speed", "2"}, 2, "WORKLOAD"},
		{[]string{"run", "--rate", "5", "--max-lag", "-1s"}, 2, "--max-lag takes"},
		{[]string{"run", "none.csv"}, 2, "azure-conv"},
		{[]string{"run", "--rate", "5", "--url", nobody}, 4, "narwhal serve"},
		{[]string{"run", "--rate", "5", "--url", nobody, "--journal", "none"}, 2, "--journal"},
		{[]string{"run", "--rate", "5", "--url", nobody, "--api-key-env", "NO_SUCH_KEY"}, 2, "export NO_SUCH_KEY"},
		{[]string{"run", "--rate", "5", "--url", "nowhere"}, 2, "--url"},
		{[]string{"run", "--rate", "5", "--url", "http://a:b@127.0.0.1:1"}, 2, "--url"},
		{[]string{"report"}, 2, "bench run"},
		{[]string{"report", p.dir}, 2, "bench run"},
		{[]string{"report", "--journal", p.fleet}, 2, "serve"},
		{[]string{"compare", "x"}, 2, "--help"},
		{[]string{"compare", "x", "y"}, 2, "bench run"},
	} {
		r := p.bench(c.code, c.args...)
		if hint := r.err[strings.LastIndex(r.err, "hint:")+1:]; !strings.Contains(hint, c.hint) {
			t.Errorf("%v: %s", c.args, r.err)
		}
	}
}
