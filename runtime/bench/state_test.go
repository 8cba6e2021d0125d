package bench

import (
	"maps"
	"testing"
)

// TestStateHolds: each count of requests in the router keeps it from being idle.
func TestStateHolds(t *testing.T) {
	for name, c := range map[string]struct {
		state string
		want  map[string]int
		busy  int
	}{
		"idle":            {`"admission":{"inflight":0,"queued":0},"serving":{"http_retained":0},"resident":{"p0":{"prefill":0,"decode":0}}`, map[string]int{}, 0},
		"inflight":        {`"admission":{"inflight":2}`, map[string]int{"inflight": 2}, 2},
		"queued":          {`"admission":{"queued":1}`, map[string]int{"queued": 1}, 1},
		"waiting prefill": {`"admission":{"waiting_prefill":1}`, map[string]int{"waiting_prefill": 1}, 1},
		"waiting decode":  {`"admission":{"waiting_decode":1}`, map[string]int{"waiting_decode": 1}, 1},
		"retained":        {`"admission":{"inflight":1},"serving":{"http_retained":3}`, map[string]int{"inflight": 1, "http_retained": 3}, 3},
		"resident":        {`"resident":{"p0":{"prefill":1,"decode":-5},"d0":{"decode":2}}`, map[string]int{"resident": 3}, 3},
	} {
		run, holds, err := parseState([]byte(`{"schema":"narwhal.state","journal_run":"r",` + c.state + `}`))
		if err != nil || run != "r" || !maps.Equal(holds, c.want) || busy(holds) != c.busy {
			t.Errorf("%s: %v, busy %d, %v", name, holds, busy(holds), err)
		}
	}
}
