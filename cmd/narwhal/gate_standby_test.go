package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/gates/serve"
	"github.com/narwhal-fleet/narwhal/internal/process"
)

// newest is the newest evidence under a key.
func newest[T any](w *world, key record.Key) (v T) {
	w.t.Helper()
	return evidenceOf[T](w.t, w.latest(), key)
}

// evidenceOf is the newest evidence of a record under a key.
func evidenceOf[T any](t *testing.T, snap *record.Snapshot, key record.Key) (v T) {
	t.Helper()
	e, ok := snap.State.Evidence(key)
	if !ok {
		t.Fatalf("no evidence %s", key)
	}
	b, err := snap.Load(e.Ref)
	if err == nil {
		err = json.Unmarshal(b, &v)
	}
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// standing is the newest evidence of the standby.
func (w *world) standing() serve.Standing { return newest[serve.Standing](w, "G/standing") }

// TestStandbyThroughTheGates starts a router with its standby, restarts both, loses one after
// the other, and goes back.
func TestStandbyThroughTheGates(t *testing.T) {
	t.Parallel()
	var address string
	w := newWorld(t, 2, nil)
	w.rewrite(func(doc map[string]any) {
		address = fmt.Sprintf("127.0.0.1:%d", w.sbx.Hosts[1].Ports.Router)
		r := doc["deploy"].(map[string]any)["router"].(map[string]any)
		r["standby"] = map[string]any{"host": w.sbx.Hosts[1].ID, "listen": address}
		r["lease"] = map[string]any{"path": filepath.Join(w.dir, "lease.json"), "ttl": "3s"}
	})
	if got := w.reply(w.must(0, w.gates())).states(); got != allPassed {
		t.Fatalf("gates are %s", got)
	}
	first := w.standing()
	if !first.Standing || first.Epoch != 1 || !strings.HasPrefix(first.Holder, w.sbx.Hosts[0].ID+"/router:") {
		t.Errorf("%+v", first)
	}
	if status, body := asked(address); status != 503 || !strings.Contains(body, `"standby"`) {
		t.Errorf("the standby answers %d %s", status, body)
	}
	if r := w.must(0, w.run("gate", "run", "-f", w.fleet, "--yes")); !strings.Contains(r.out, "nothing to do") {
		t.Errorf("the second run says %s", tail(r.out))
	}
	t.Run("the router is restarted", func(t *testing.T) {
		seq := w.latest().Seq
		w.rewrite(func(doc map[string]any) { doc["slo"].(map[string]any)["ttft_s"] = 1.5 })
		w.must(0, w.gates())
		if got := made(t, w.latest(), seq); !slices.Contains(got, "G/router") || !slices.Contains(got, "G/standby") || !slices.Contains(got, "G/standing") {
			t.Errorf("made again %v", got)
		}
		// The standby took the router's place and gave it back.
		if s := w.standing(); !s.Standing || s.Epoch != 3 {
			t.Errorf("%+v", s)
		}
	})
	t.Run("the standby is killed", func(t *testing.T) {
		seq := w.latest().Seq
		w.kill(1, "standby")
		w.must(0, w.gates())
		if got := made(t, w.latest(), seq); !slices.Equal(got, []string{"G/standby", "G/standing"}) {
			t.Errorf("made again %v", got)
		}
	})
	t.Run("the router is killed", func(t *testing.T) {
		w.kill(0, "router")
		await(t, "the standby to serve", func() bool { status, _ := asked(address); return status == 200 })
		if got := w.reply(w.must(0, w.gates())).states(); got != allPassed {
			t.Errorf("gates are %s", got)
		}
		if s := w.standing(); !s.Standing || s.Epoch != 5 || !strings.HasPrefix(s.Holder, w.sbx.Hosts[0].ID+"/router:") {
			t.Errorf("%+v", s)
		}
	})
	t.Run("rollback", func(t *testing.T) {
		back := w.reply(w.must(0, w.run("gate", "rollback", "--to", "F", "-f", w.fleet, "--yes", "--format", "json")))
		if !slices.Contains(back.Data.Stopped, "standby") || !slices.Contains(back.Data.Stopped, "router") || len(back.Data.Residue) != 0 {
			t.Errorf("stopped %v, left %v", back.Data.Stopped, back.Data.Residue)
		}
		for i, name := range []string{"router", "standby"} {
			if r, ok := process.Read(filepath.Join(w.sbx.Hosts[i].Root, "run"), name); ok && r.Alive() {
				t.Errorf("%s still runs", name)
			}
		}
	})
	w.must(0, w.run("gate", "verify", "-f", w.fleet))
}
