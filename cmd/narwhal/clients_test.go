//go:build clients

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Real clients, unmodified: make clients installs them from PyPI and names their folder.
func clientsDir(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("NARWHAL_CLIENTS")
	if dir == "" {
		t.Fatal("NARWHAL_CLIENTS names no virtual environment; run make clients")
	}
	return dir
}

func TestOpenAIClient(t *testing.T) {
	dir := clientsDir(t)
	_, addr := newPlainFleet(t).serve()
	cmd := exec.Command(filepath.Join(dir, "bin", "python"), "../../internal/clients/openai_check.py", "http://"+addr, "tern-tiny")
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Error(err)
	}
}

func TestCurl(t *testing.T) {
	_, addr := newPlainFleet(t).serve()
	run := func(args ...string) string {
		out, err := exec.Command("curl", append([]string{"-sS", "--max-time", "20"}, args...)...).Output()
		if err != nil {
			t.Fatalf("curl %v: %v", args, err)
		}
		return string(out)
	}
	body := `{"model":"tern-tiny","prompt":"sing","max_tokens":5,"temperature":0`
	whole := run("http://"+addr+"/v1/completions", "-H", "Content-Type: application/json", "-d", body+"}")
	var answer struct{ Choices []struct{ Text string } }
	if json.Unmarshal([]byte(whole), &answer) != nil || len(answer.Choices) != 1 || answer.Choices[0].Text == "" {
		t.Errorf("buffered: %s", whole)
	}
	stream := run("-N", "http://"+addr+"/v1/completions", "-d", body+`,"stream":true}`)
	if strings.Count(stream, "data: ") != 6 || !strings.HasSuffix(strings.TrimSpace(stream), "data: [DONE]") && strings.Count(stream, "[DONE]") != 1 {
		t.Errorf("streamed: %s", stream)
	}
	head := run("-I", "http://"+addr+"/metrics")
	if !strings.HasPrefix(head, "HTTP/1.1 200") {
		t.Errorf("head: %s", head)
	}
	expect := run("http://"+addr+"/v1/completions", "-H", "Expect: 100-continue", "-d", body+"}")
	if expect == "" || strings.Contains(expect, `"error"`) {
		t.Errorf("expect: %s", expect)
	}
}

// aiperf asks for models and metrics beside the load; every request must succeed.
func TestAIPerf(t *testing.T) {
	dir := clientsDir(t)
	_, addr := newPlainFleet(t).serve()
	out, tokenizer := t.TempDir(), t.TempDir()
	if text, err := exec.Command(filepath.Join(dir, "bin", "python"), "../../internal/clients/tokenizer.py", tokenizer).CombinedOutput(); err != nil {
		t.Fatalf("make a tokenizer: %v\n%s", err, text)
	}
	cmd := exec.Command(filepath.Join(dir, "bin", "aiperf"), "profile", "--model", "tern-tiny", "--url", "http://"+addr, "--endpoint-type", "chat", "--streaming",
		"--concurrency", "4", "--request-count", "40", "--synthetic-input-tokens-mean", "50", "--output-tokens-mean", "8",
		"--tokenizer", tokenizer, "--ui", "none", "--artifact-dir", out)
	text, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	report, err := filepath.Glob(filepath.Join(out, "*", "profile_export_aiperf.json"))
	if len(report) == 0 {
		report, err = filepath.Glob(filepath.Join(out, "profile_export_aiperf.json"))
	}
	if err != nil || len(report) == 0 {
		t.Fatalf("no report\n%s", text)
	}
	b, err := os.ReadFile(report[0])
	if err != nil {
		t.Fatal(err)
	}
	var r struct {
		Count struct{ Avg float64 }  `json:"request_count"`
		Bad   *struct{ Avg float64 } `json:"error_request_count"`
	}
	if err := json.Unmarshal(b, &r); err != nil {
		t.Fatal(err)
	}
	if r.Count.Avg != 40 || r.Bad != nil && r.Bad.Avg > 0 {
		t.Errorf("counted %+v\n%s", r, bytes.TrimSpace(text))
	}
}
