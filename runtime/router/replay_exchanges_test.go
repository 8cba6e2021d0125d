package router

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// retriedStreams were recorded as bytes only; their requests are known from the legs.
func retriedStreams(t *testing.T) []replayCase {
	t.Helper()
	var list []replayCase
	for name, fault := range map[string]string{"stream_after_decode_retry": "decode_503", "stream_after_silent_engine_retry": "decode_hang_before"} {
		c := replayCase{Case: name, Request: completion(`{"prompt":"x","max_tokens":4,"stream":true,"fault":{"kind":%q,"iid":"d0"}}`, fault)}
		c.Response.Status, c.Response.SSE = 200, "sse/"+name+".sse"
		_, id, _ := strings.Cut(string(replayFile(t, c.Response.SSE)), `"id":"cmpl-`)
		c.Response.Headers = map[string]string{"content-type": "text/event-stream; charset=utf-8", "x-request-id": id[:36]}
		list = append(list, c)
	}
	return list
}

func TestReplayInspection(t *testing.T)      { replayAll(t, replayCases(t, "exchanges-inspection.jsonl")) }
func TestReplaySuccess(t *testing.T)         { replayAll(t, replayCases(t, "exchanges-success.jsonl")) }
func TestReplayErrors(t *testing.T)          { replayAll(t, replayCases(t, "errors.jsonl")) }
func TestReplayErrorsQueue(t *testing.T)     { replayAll(t, replayCases(t, "errors-queue.jsonl")) }
func TestReplayErrorsNoEngines(t *testing.T) { replayAll(t, replayCases(t, "errors-no-engines.jsonl")) }
func TestReplayTopologies(t *testing.T)      { replayAll(t, replayCases(t, "exchanges-topologies.jsonl")) }
func TestReplayRetriedStreams(t *testing.T)  { replayAll(t, retriedStreams(t)) }

func TestReplayLifecycleUncontracted(t *testing.T) {
	replayAll(t, replayCases(t, "exchanges-lifecycle-uncontracted.jsonl"))
}

// replayAll sends each recorded request to a router of its own and compares the answers.
// What differs must stand in a table, word for word.
func replayAll(t *testing.T, cases []replayCase) {
	for _, c := range cases {
		t.Run(c.Case, func(t *testing.T) {
			t.Parallel()
			b := startCase(t, c.Case)
			got := b.send(c.Request)
			if strings.HasPrefix(c.Request.Path, "/narwhal/lifecycle") {
				got.body = withoutTimes(got.body)
			}
			diff := replayDiff(c.recorded(t), got, b.names())
			judge := judgeCase(c.Case, strings.Join(diff, "; "))
			if judge != "" {
				t.Errorf("%s\n recorded %s\n got %d %s", judge, c.Response.Body, got.status, got.body)
			}
		})
	}
}

// judgeCase compares what differs with what the tables say; "" when they agree.
func judgeCase(name, what string) string {
	noted, racy, kind := "", false, "deliberate difference"
	for _, d := range deliberate {
		if slices.Contains(strings.Split(d.name, ", "), name) {
			noted = d.what
		}
	}
	for _, d := range defects {
		if d.name == name {
			noted, racy, kind = d.what, d.racy, "known defect"
		}
	}
	switch {
	case noted == what, racy && what == "":
		return ""
	case noted == "":
		return "differs: " + what
	case what == "":
		return "no longer differs: remove its row (" + kind + ")"
	}
	return kind + " changed\n noted  " + noted + "\n differs " + what
}

// names puts the recorded host names for the addresses of this test.
func (b *replayBed) names() *strings.Replacer {
	var pairs []string
	for iid, e := range b.engines {
		pairs = append(pairs, strings.TrimPrefix(e.server.URL, "http://"), "engine-"+iid+":8000")
	}
	return strings.NewReplacer(pairs...)
}

// withoutTimes drops the process starts of a lifecycle document, which the fleet of the
// recording did not have.
func withoutTimes(doc string) string {
	var m map[string]any
	if json.Unmarshal([]byte(doc), &m) != nil {
		return doc
	}
	if m["process_starts"] != nil {
		m["process_starts"] = map[string]any{}
	}
	b, err := json.Marshal(m)
	if err != nil {
		return doc
	}
	return string(b)
}
