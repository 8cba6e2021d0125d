package router

import (
	"encoding/json"
	"strings"
	"testing"
)

// A stop that matches at once ends the answer, not the prefill: the answer is the engine's own.
func TestStopInTheFirstToken(t *testing.T) {
	s := stormy(t)
	whole := []rune(s.wants[0])
	for _, stop := range []any{string(whole[0]), string(whole[:3]), []string{"nowhere", string(whole[1])}, string(whole[6:8])} {
		for _, more := range []map[string]any{{}, {"include_stop_str_in_output": true}, {"min_tokens": 4}, {"max_tokens": 1}} {
			ask := stormAsk(0)
			ask["stop"] = stop
			for k, v := range more {
				ask[k] = v
			}
			want := post(t, limit(t), "http://"+s.engines[0].Addr()+"/v1/completions", ask)
			got := post(t, limit(t), s.url+"/v1/completions", ask)
			if got.status != want.status || text(t, got.body) != text(t, want.body) || finishReason(t, got.body) != finishReason(t, want.body) {
				t.Errorf("stop %v %v: %d %s, the engine says %d %s", stop, more, got.status, got.body, want.status, want.body)
			}
			ask["stream"] = true
			streamed := post(t, limit(t), s.url+"/v1/completions", ask)
			if streamed.status != 200 || !strings.HasSuffix(streamed.body, "data: [DONE]\n\n") || strings.Contains(streamed.body, `"error"`) {
				t.Errorf("stop %v %v, streamed: %d %s", stop, more, streamed.status, streamed.body)
			}
		}
	}
	for _, r := range s.rows() {
		if len(r.Failures) > 0 {
			t.Fatalf("an attempt failed: %s", failuresOf(r))
		}
	}
}

func finishReason(t *testing.T, body string) string {
	t.Helper()
	var c struct {
		Choices []struct {
			Reason string `json:"finish_reason"`
		}
	}
	if err := json.Unmarshal([]byte(body), &c); err != nil || len(c.Choices) != 1 {
		t.Fatalf("%v in %s", err, body)
	}
	return c.Choices[0].Reason
}
