package router

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// Differences that no recorded exchange shows. The reference's answer follows from its
// contract, or is that of a recorded case named here.

func getOf(path string) replayRequest { return replayRequest{Method: http.MethodGet, Path: path} }

// judged compares an answer with the reference's and with the tables.
func (b *replayBed) judged(name string, want, got answer) {
	b.t.Helper()
	if judge := judgeCase(name, strings.Join(replayDiff(want, got, b.names()), "; ")); judge != "" {
		b.t.Errorf("%s: %s\n got %d %s", name, judge, got.status, got.body)
	}
}

func TestReplayForeignHost(t *testing.T) {
	b := startReplay(t, rolesSingle, false)
	req, err := http.NewRequestWithContext(limit(t), http.MethodGet, b.url+"/health", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = "router-a:8000"
	resp, err := b.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	want := caseNamed(t, "exchanges-inspection.jsonl", "get_health").recorded(t)
	b.judged("foreign_host", want, answer{resp.StatusCode, resp.Header, ""})
}

func TestReplayFrameworkPages(t *testing.T) {
	b := startReplay(t, rolesSingle, false)
	for _, path := range []string{"/docs", "/redoc", "/openapi.json"} {
		got := b.send(getOf(path))
		b.judged("framework_pages", answer{status: 200, header: got.header}, got)
	}
}

func TestReplayStuckHealth(t *testing.T) {
	b := startReplay(t, rolesF1, false)
	entered, release, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		b.router.own.do(func() { close(entered); <-release })
	}()
	<-entered
	got := b.send(getOf("/health"))
	close(release)
	<-done
	want := caseNamed(t, "exchanges-inspection.jsonl", "get_health").recorded(t)
	diff := []string{fmt.Sprintf("status %d → %d", want.status, got.status)}
	got.status = want.status // so that the documents are compared too
	diff = append(diff, replayDiff(want, got, nil)...)
	if judge := judgeCase("stuck_health", strings.Join(diff, "; ")); judge != "" {
		t.Error(judge)
	}
}

func TestReplayPromptBeyondContext(t *testing.T) {
	b := startReplay(t, rolesF1, false)
	want := caseNamed(t, "errors.jsonl", "refused_prompt").recorded(t)
	b.judged("prompt_beyond_context", want, b.complete(`{"prompt":%q,"max_tokens":8}`, strings.Repeat("x", 32768)))
}

// The handoffs that the reference took are not used.
func TestReplayRecordedHandoff(t *testing.T) {
	b := startReplay(t, rolesF1, false)
	want := caseNamed(t, "exchanges-success.jsonl", "buffered_completion").recorded(t)
	b.judged("recorded_handoff", want, b.complete(`{"prompt":"Say hello to the whale","max_tokens":8,"fault":{"kind":"old_handoff"}}`))
	for _, l := range b.received() {
		if strings.HasSuffix(l.header.Get("X-Request-Id"), "-decode") {
			t.Errorf("a decode leg went to %s", l.iid)
		}
	}
}
