package bench

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The files have the members that AIPerf 0.13.0 demands, and its units.
func TestAIPerfFiles(t *testing.T) {
	f := folderOf("run", 50, "x", func(i int) bool { return i != 0 })
	p := &f.Points[0]
	p.Info.Started, p.Info.ElapsedS = time.Unix(1_700_000_000, 0).UTC(), 10
	for i := range p.Rows {
		r := &p.Rows[i]
		r.At, r.Lag, r.Duration, r.PromptTokens = float64(i)*0.1, 0.05, 1.05, 30
	}
	p.Rows[3] = Row{Index: 3, Sent: true, Status: 429, Error: "later", Outcome: OutcomeRefused, Duration: 0.1}
	p.Rows[4] = Row{Index: 4, Outcome: OutcomeScheduleMiss, Error: "not sent"}
	dir := filepath.Join(t.TempDir(), "out")
	if err := f.WriteAIPerf(dir, 0); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(dir, AIPerfFiles[0]))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	if len(lines) != 49 {
		t.Errorf("%d records", len(lines))
	}
	var rec aiperfRecord
	if err := json.Unmarshal([]byte(lines[1]), &rec); err != nil || rec.Metadata.Start-rec.Metadata.Credit != 50_000_000 || rec.Metrics["request_latency"].Value != 1000 || rec.Metrics["time_to_first_token"] != (aiperfValue{450, "ms"}) || rec.Metadata.Phase != "profiling" {
		t.Errorf("%+v, %v", rec, err)
	}
	if err := json.Unmarshal([]byte(lines[3]), &rec); err != nil || rec.Error == nil || *rec.Error.Code != 429 {
		t.Errorf("%+v, %v", rec, err)
	}
	var sum struct {
		Schema string      `json:"schema_version"`
		TTFT   aiperfStats `json:"time_to_first_token"`
		Count  aiperfStats `json:"request_count"`
		Good   aiperfStats `json:"good_request_count"`
		Errors []struct {
			Count int `json:"count"`
		} `json:"error_summary"`
	}
	if err := readJSON(filepath.Join(dir, AIPerfFiles[1]), &sum); err != nil || sum.Schema != AIPerfSchema || *sum.TTFT.Count != 48 || *sum.TTFT.P50 != 450 || *sum.Count.Avg != 48 || sum.Count.Count != nil || *sum.Good.Avg != 47 || len(sum.Errors) != 1 {
		t.Errorf("%+v, %v", sum, err)
	}
	table, err := os.ReadFile(filepath.Join(dir, AIPerfFiles[2]))
	if err != nil || !strings.HasPrefix(string(table), "Metric,avg,min,max,sum,p1,p5,p10,p25,p50,p75,p90,p95,p99,std\r\n") || !strings.Contains(string(table), "\r\n\r\nMetric,Value\r\n") || !strings.Contains(string(table), "Time to First Token (ms),") {
		t.Errorf("%s, %v", table, err)
	}
	if err := f.WriteAIPerf(dir, 1); err == nil {
		t.Error("a point that is not there was written")
	}
}
