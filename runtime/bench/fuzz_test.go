package bench

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestParseMetrics(t *testing.T) {
	got, err := ParseMetrics([]byte("# HELP a b\na 1\nb{x=\"1\",y=\"a\\\"}\\n\",} 2.5 1700000000\n\nc{} NaN\nnarwhal_slo_seconds{metric=\"ttft\",slo=\"2\"} 2\nnarwhal_slo_seconds{metric=\"tpot\",slo=\"x\"} 0.1\n"))
	if err != nil || len(got) != 5 || got[1].Labels["y"] != "a\"}\n" || got[1].Value != 2.5 || !math.IsNaN(got[2].Value) {
		t.Errorf("%+v, %v", got, err)
	}
	if slo, ok := PromiseOf(got); !ok || slo != (SLO{2, 0.1}) {
		t.Errorf("%+v", slo)
	}
	for _, s := range []string{"a", "{x=\"1\"} 2", "a{x=1} 2", "a{x=\"1} 2", "a{x=\"1\"", "a b", "a 1 2 3", strings.Repeat("a", maxMetricsLine+1) + " 1"} {
		if got, err := ParseMetrics([]byte(s)); err == nil {
			t.Errorf("%.40q: %+v", s, got)
		}
	}
}

func FuzzParseMetrics(f *testing.F) {
	f.Add([]byte("# HELP a b\nnarwhal_failed_total{reason=\"x\\\\y\"} 1e3 17\n"))
	f.Add([]byte("a{b=\"c\"d=\"e\"} +Inf"))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := ParseMetrics(b)
		if err != nil {
			return
		}
		for name, v := range counters(got) {
			if math.IsNaN(v) || name == "" {
				t.Fatalf("%q = %g", name, v)
			}
		}
		PromiseOf(got)
	})
}

// A stream may say anything: a request counts as completed only after [DONE] and a
// natural end, and its row can always be written.
func FuzzStream(f *testing.F) {
	f.Add([]byte("data: {\"choices\":[{\"text\":\"x\",\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":2}}\n\ndata: [DONE]\n\n"))
	f.Add([]byte("data: {\"error\":{\"message\":\"m\",\"code\":5}}\n\ndata: [DONE]\n"))
	f.Add([]byte(": comment\r\ndata:{\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\r\n\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		row := Row{Status: 200, Sent: true}
		row.read(bytes.NewReader(b), time.Now())
		if row.Completed && (!bytes.Contains(b, []byte("[DONE]")) || row.Error != "" || row.Finish == "") {
			t.Fatalf("completed: %+v", row)
		}
		if !row.Completed && row.Error == "" {
			t.Fatal("neither completed nor wrong")
		}
		if _, err := json.Marshal(row); err != nil {
			t.Fatal(err)
		}
	})
}

func FuzzState(f *testing.F) {
	f.Add([]byte(`{"schema":"narwhal.state","journal_run":"r","admission":{"inflight":3,"queued":-1},"resident":{"p0":{"prefill":1,"decode":2}}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if run, holds, err := parseState(b); err == nil && (run == "" || busy(holds) < 0) {
			t.Fatalf("%q, %v", run, holds)
		}
	})
}

// FuzzFolder puts any bytes in the place of each file of a run's folder.
func FuzzFolder(f *testing.F) {
	for i := range 6 {
		f.Add(i, []byte("{\"index\":0}\n"))
		f.Add(i, []byte(`{"index":0,"completed":true,"sent":true,"ttft_s":1e308,"duration_s":1e308,"tpot_s":1e-320}`+"\n"))
		f.Add(i, []byte(`{"schema":"narwhal.journal","schema_version":1,"run":"r","rid":"x","client_rid":"t-1-0","terminal":"completed","ttft_s":null}`+"\n"))
		f.Add(i, []byte(`{"schema":"narwhal.bench-run","schema_version":1,"state":"running","points":["a"],"index":-5,"tag":"","sample_every_s":-1}`))
		f.Add(i, []byte("at_s,input,output,class\n1e9,5,5,\n"))
		f.Add(i, []byte(`{"at":"2026-01-01T00:00:00Z","journal_run":"r","counters":{"narwhal_offered_total":-1e308}}`+"\n"))
	}
	f.Fuzz(func(t *testing.T, which int, b []byte) {
		dir := t.TempDir()
		at := pointDir(dir, 0)
		if err := os.MkdirAll(at, 0o700); err != nil {
			t.Fatal(err)
		}
		files := []string{filepath.Join(dir, fileRun), filepath.Join(at, filePoint), filepath.Join(at, fileArrivals), filepath.Join(at, fileRows), filepath.Join(at, fileJournal), filepath.Join(at, fileSamples)}
		texts := []string{`{"schema":"narwhal.bench-run","schema_version":1,"state":"running","points":["a"],"slo":{"ttft_s":1,"tpot_s":1}}`, `{"label":"a","tag":"t-1","state":"running"}`,
			"at_s,input,output,class\n0,5,5,c\n", `{"index":0,"client_rid":"t-1-0","sent":true,"completed":true,"output_tokens":3,"ttft_s":0.5,"tpot_s":0.1}` + "\n",
			`{"schema":"narwhal.journal","schema_version":1,"run":"r","rid":"x","client_rid":"t-1-0","terminal":"completed"}` + "\n", `{"journal_run":"r","counters":{"narwhal_offered_total":1}}` + "\n"}
		for i, path := range files {
			text := []byte(texts[i])
			if i == min(len(files)-1, max(0, which)) {
				text = b
			}
			if err := os.WriteFile(path, text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		got, err := ReadFolder(dir)
		if err != nil {
			return
		}
		r := got.Score()
		if r.Offered != r.Completed+r.Refused+r.Failed || r.Qualified > r.Completed {
			t.Fatalf("%+v", r.Score)
		}
		if _, err := json.Marshal(r); err != nil {
			t.Fatal(err)
		}
		if _, err := Compare(got, got); err != nil && len(got.Points) > 0 {
			t.Fatal(err)
		}
		for i := range got.Points {
			p := &got.Points[i]
			for _, row := range p.Rows {
				if _, err := json.Marshal(p.aiperf(row)); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := json.Marshal(got.aiperfSummary(p, nil)); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func FuzzPhase(f *testing.F) {
	for _, s := range []string{"5@1m", "0..1e5@168h:chat=3,document=0.5", "1..2@", "::"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := ParsePhase(s, nil)
		if err == nil && (p.For <= 0 || !(p.From >= 0 && p.To >= 0) || !(p.work() >= 0)) {
			t.Fatalf("%+v", p)
		}
	})
}
