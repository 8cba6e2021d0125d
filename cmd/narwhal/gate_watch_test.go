package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/internal/process"
)

// TestGateWatch keeps verifying a served fleet, and finds what happens to it afterwards.
func TestGateWatch(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2, func(doc map[string]any) { doc["engine"].(map[string]any)["engine_api_key_env"] = "WATCH_KEY" })
	w.env = []string{"WATCH_KEY=k-9012"}
	watch := func(args ...string) ran {
		return w.run(append([]string{"gate", "watch", "-f", w.fleet, "--every", "10ms", "--budget", "100", "--format", "json"}, args...)...)
	}
	w.hinted(w.must(2, watch("--rounds", "1")), "no such run")
	w.must(0, w.gates())
	before := w.latest().Seq
	var told struct {
		Data watchData `json:"data"`
	}
	idle := func() watchData {
		// The router's own looks at engines count as requests there: a turn may come a round later.
		var d watchData
		await(t, "both engines' turns", func() bool {
			r := watch("--rounds", "4")
			if r.code != 0 && r.code != 3 || json.Unmarshal([]byte(r.out), &told) != nil {
				t.Fatalf("exit %d: %s %s", r.code, r.out, r.err)
			}
			d.Pairs, d.Engines, d.Findings = d.Pairs+told.Data.Pairs, d.Engines+told.Data.Engines, append(d.Findings, told.Data.Findings...)
			return d.Pairs >= 2 && d.Engines >= 2
		})
		return d
	}
	if d := idle(); len(d.Findings) > 0 {
		t.Errorf("found %+v in a healthy fleet", d.Findings)
	}
	if w.latest().Seq != before {
		t.Error("the watch wrote to the record")
	}
	w.must(0, w.run("gate", "verify", "-f", w.fleet))
	for _, h := range w.sbx.Hosts {
		resp, err := http.Post(fmt.Sprintf("http://127.0.0.1:%d/simulated/inject", h.Ports.Engine), "application/json", strings.NewReader(`{"kind":"wrong-block","count":-1}`))
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
	}
	finds := func(code string) {
		t.Helper()
		await(t, code, func() bool {
			time.Sleep(time.Second) // engines earn their budget
			r := watch("--rounds", "3")
			return r.code == 1 && strings.Contains(r.out, `"`+code+`"`)
		})
	}
	finds("handoff-output")
	w.kill(0, "sidecar-e0")
	finds("watch-unattested")
	if r, ok := process.Read(filepath.Join(w.sbx.Hosts[0].Root, "run"), "router"); !ok || !r.Alive() {
		t.Fatal("no router")
	}
	w.kill(0, "router")
	w.hinted(w.must(1, watch("--rounds", "1")), "watch-router-silent")
}
