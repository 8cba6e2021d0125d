package preflight

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/narwhal-fleet/narwhal/runtime/engine/simulated"
)

const metricsOfLoad = `vllm:num_requests_running{engine="0"} %d
vllm:num_requests_waiting{engine="0"} 0
vllm:kv_cache_usage_perc{engine="0"} 0
vllm:generation_tokens_total{engine="0"} 7
vllm:prompt_tokens_total{engine="0"} 7
process_start_time_seconds 1796098720
`

// One request that ends meanwhile is a probe's; several are load, and told at once.
func TestALookWaitsForAProbe(t *testing.T) {
	var asked [2]atomic.Int32
	f := plain("vllm", make([]*simulated.Server, 2)...)
	for i, running := range []func(look int32) int{
		func(look int32) int { return int(max(0, 3-look) / max(1, 3-look)) },
		func(int32) int { return 2 },
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, metricsOfLoad, running(asked[i].Add(1)))
		}))
		defer s.Close()
		f.Engines[i].URL = s.URL
	}
	loads := directOf(f).Loads(t.Context(), []string{"e0", "e1"})
	if l := loads["e0"]; l.Busy() || l.Unknown != "" || asked[0].Load() != 3 {
		t.Errorf("a probe: %+v (%s) after %d looks", l, l.Unknown, asked[0].Load())
	}
	if l := loads["e1"]; l.Running != 2 || asked[1].Load() != 1 {
		t.Errorf("load: %+v after %d looks", l, asked[1].Load())
	}
}
