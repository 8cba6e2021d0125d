package router

import (
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/runtime/router/tenant"
)

// villainBed is a router of one pair whose decode engine, or both engines, play a script.
func villainBed(t *testing.T, script func(*villain, net.Conn), both bool, changes ...tweak) *testbed {
	t.Helper()
	var engines []fleet.Engine
	for i, iid := range []string{"p0", "d0"} {
		v := &villain{stub: newStub(iid), script: script}
		v.roused.Store(both || i == 1)
		engines = append(engines, fleet.Engine{IID: iid, URL: "http://" + v.listen(t), Pin: true, Role: []string{fleet.RolePrefill, fleet.RoleDecode}[i]})
	}
	cfg := childConfig(engines, "")
	steered(&cfg)
	for _, change := range changes {
		change(&cfg)
	}
	r, err := New(cfg)
	if err == nil {
		err = r.Start(limit(t))
	}
	if err != nil {
		t.Fatal(err)
	}
	b := &testbed{t: t, router: r, url: "http://" + r.Addr()}
	t.Cleanup(b.stop)
	return b
}

func get(t *testing.T, url string) string {
	t.Helper()
	q, err := http.NewRequestWithContext(limit(t), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	return send(t, q).body
}

// What an engine says of its use is believed up to what was asked for.
func TestUsageIsBounded(t *testing.T) {
	use := `data: {"id":"x","object":"text_completion","choices":[],"usage":{"prompt_tokens":1000000000000,"completion_tokens":1000000000000,"total_tokens":2000000000000}}` + "\n\n"
	for name, c := range map[string]struct {
		ask  map[string]any
		want int
	}{
		"a sequence":       {map[string]any{"prompt": "x", "max_tokens": 4}, 4},
		"several of two":   {map[string]any{"prompt": []string{"x", "y"}, "max_tokens": 4, "n": 3}, 24},
		"the larger limit": {map[string]any{"prompt": "x", "max_tokens": 9, "max_completion_tokens": 4}, 9},
	} {
		script := says(streamHead + oneFrame + lastFrame + use + doneFrame)
		if c.want == 24 { // these are not put together from a stream
			var six []string
			for i := range 6 {
				six = append(six, fmt.Sprintf(`{"index":%d,"text":"a","finish_reason":"length"}`, i))
			}
			script = says(jsonHead + strings.Replace(strings.TrimPrefix(use, "data: "), `"choices":[]`, `"choices":[`+strings.Join(six, ",")+`]`, 1))
		}
		b := villainBed(t, script, c.want == 24)
		if a := b.complete(c.ask); a.status != 200 || !strings.Contains(a.body, `"completion_tokens":1000000000000`) {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
		if m := get(t, b.url+"/metrics"); !strings.Contains(m, fmt.Sprintf("narwhal_decode_tokens_observed_total %d\n", c.want)) {
			t.Errorf("%s: want %d tokens observed", name, c.want)
		}
	}
}

// A prompt has no more tokens than its body has bytes, whatever an engine says.
func TestPromptUseIsBounded(t *testing.T) {
	dir := t.TempDir()
	use := `data: {"id":"x","object":"text_completion","choices":[],"usage":{"prompt_tokens":16000,"completion_tokens":2,"total_tokens":16002}}` + "\n\n"
	b := villainBed(t, says(streamHead+oneFrame+lastFrame+use+doneFrame), false, func(c *Config) { c.Access.Tenants = tenantsFile(t, dir, "") })
	if a := b.as("key-of-the-small-one", map[string]any{"prompt": "x", "max_tokens": 2}); a.status != 200 || !strings.Contains(a.body, `"prompt_tokens":16000`) {
		t.Errorf("%d %s", a.status, a.body)
	}
	for _, l := range strings.Split(get(t, b.url+"/metrics"), "\n") {
		if used, ok := strings.CutPrefix(l, `narwhal_router_tenant_tokens_total{tenant="small"} `); ok {
			if n, err := strconv.ParseFloat(used, 64); err != nil || n < 3 || n > 200 {
				t.Errorf("the tenant is charged %s tokens", used)
			}
			return
		}
	}
	t.Error("no count of the tenant's tokens")
}

// A mark of the byte order before the first event takes no token with it.
func TestByteOrderMark(t *testing.T) {
	b := villainBed(t, says(streamHead+"\xef\xbb\xbf"+oneFrame+lastFrame+doneFrame), false)
	if a := b.complete(map[string]any{"prompt": "x", "max_tokens": 2}); !strings.Contains(a.body, `"text":" a b"`) {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// Each prompt and each choice counts for the most that one request may ask for.
func TestBurstCountsEveryAnswer(t *testing.T) {
	dir := t.TempDir()
	b := startBed(t, 1, 1, quick(), func(c *Config) { c.Access.Tenants = tenantsFile(t, dir, "") })
	for name, ask := range map[string]map[string]any{
		"prompts":             {"prompt": []string{"a", "b", "c"}, "max_tokens": 10},
		"prompts of ids":      {"prompt": [][]int{{1}, {2}, {3}}, "max_tokens": 10},
		"choices":             {"prompt": "a", "max_tokens": 10, "n": 3},
		"choices of prompts":  {"prompt": []string{"a", "b"}, "max_tokens": 3, "n": 4},
		"limits of two names": {"prompt": []string{"a", "b", "c"}, "max_completion_tokens": 10},
	} {
		if a := b.as("key-of-the-metered-one", ask); a.status != 429 || !strings.Contains(a.body, tenant.TooLarge.String()) {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
	if a := b.as("key-of-the-metered-one", map[string]any{"prompt": []string{"a", "b"}, "max_tokens": 3}); a.status != 200 {
		t.Errorf("what fits: %d %s", a.status, a.body)
	}
}
