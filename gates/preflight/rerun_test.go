package preflight

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/narwhal-fleet/narwhal/runtime/engine"
)

// TestRerun asks a cohort for longer answers when its streams came in one piece.
func TestRerun(t *testing.T) {
	for name, c := range map[string]struct {
		enough int // tokens from which on events come one by one
		asked  []int
		fails  bool
	}{
		"at once":       {4, []int{4}, false},
		"longer":        {16, []int{4, 8, 16}, false},
		"never":         {1 << 20, []int{4, 8, 16, 32, 50}, true},
		"up to a limit": {50, []int{4, 8, 16, 32, 50}, false},
	} {
		var mu sync.Mutex
		var asked []int
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/tokenize" {
				_, _ = fmt.Fprint(w, `{"count":10,"tokens":[1,2,3,4,5,6,7,8,9,10]}`)
				return
			}
			var q struct {
				Max int `json:"max_tokens"`
			}
			if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
				t.Error(err)
			}
			mu.Lock()
			asked = append(asked, q.Max)
			mu.Unlock()
			events := 2
			if q.Max >= c.enough {
				events = q.Max
			}
			for range events {
				_, _ = fmt.Fprint(w, `data: {"choices":[{"token_ids":[1]}]}`+"\n\n")
			}
			_, _ = fmt.Fprint(w, "data: [DONE]\n\n")
		}))
		client, err := engine.NewClient(srv.URL, engine.Options{})
		if err != nil {
			t.Fatal(err)
		}
		p := &prober{client: client, model: "m", limit: 60}
		p.rng = rand.New(rand.NewPCG(1, 1))
		s, err := p.decode(limited(t), 1, 10, 4)
		if (err != nil) != c.fails || err == nil && (s.Requests != 1 || s.KVTokens != 12) || fmt.Sprint(asked) != fmt.Sprint(c.asked) {
			t.Errorf("%s: %+v, %v, asked for %v", name, s, err, asked)
		}
		client.Close()
		srv.Close()
	}
}

// TestPaceSettles looks on where other work keeps the paces apart, and no further than that takes.
func TestPaceSettles(t *testing.T) {
	for _, c := range []struct {
		pace []float64
		want bool
	}{{nil, false}, {[]float64{1}, false}, {[]float64{3, 1, 1.09}, true}, {[]float64{3, 1, 1.2}, false}, {[]float64{1.05, 9, 9, 1}, true}} {
		if got := (Looked{Pace: c.pace}).settled(); got != c.want {
			t.Errorf("%v: %v", c.pace, got)
		}
	}
}

// TestBriefTogether: streams that decode together for a few tokens only say more of how they were
// delivered than of the engine.
func TestBriefTogether(t *testing.T) {
	for _, c := range []struct {
		least, tokens int
		want          bool
	}{{2, 16, true}, {3, 16, true}, {4, 16, false}, {15, 64, true}, {16, 64, false}, {1, 3, false}, {0, 3, false}, {0, 8, true}} {
		if got := brief(c.least, c.tokens); got != c.want {
			t.Errorf("%d of %d tokens: %v", c.least, c.tokens, got)
		}
	}
}
