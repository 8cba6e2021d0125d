package router

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/runtime/engine/simulated"
	"github.com/narwhal-fleet/narwhal/runtime/profile"
)

// startFleet is startBed with a configuration for each engine, prefilling ones first. As the
// engines are replaced in some tests, any process of theirs may serve.
func startFleet(t *testing.T, prefill, decode int, each func(i int, c *simulated.Config), tweaks ...tweak) *testbed {
	t.Helper()
	b := &testbed{t: t, journal: filepath.Join(t.TempDir(), "journal.jsonl")}
	cfg := Config{Fleet: fleetDoc(), Listen: "127.0.0.1:0", JournalPath: b.journal, Logger: slog.New(slog.NewTextHandler(testWriter{t}, nil)), Verify: anyProcess}
	var rows []profile.Row
	for i := range prefill + decode {
		c := simulated.Config{Simulated: quick(), Model: modelName, SideChannel: "127.0.0.1:0"}
		if each != nil {
			each(i, &c)
		}
		e := b.launch(c)
		b.engines = append(b.engines, e)
		entry := fleet.Engine{IID: fmt.Sprintf("p%d", i), URL: e.URL(), Role: fleet.RolePrefill, Pin: true}
		if i >= prefill {
			entry.IID, entry.Role = fmt.Sprintf("d%d", i-prefill), fleet.RoleDecode
		}
		cfg.Fleet.Engines = append(cfg.Fleet.Engines, entry)
		rows = append(rows, profile.NewRow(entry.IID, "sha256:"+strings.Repeat("0", 64), curveOf(c.Simulated), profile.Report{}))
	}
	cfg.Profiles = profile.NewStore(nil, rows...)
	for _, tw := range tweaks {
		tw(&cfg)
	}
	r, err := New(cfg)
	if err == nil {
		err = r.Start(limit(t))
	}
	if err != nil {
		t.Fatal(err)
	}
	b.router, b.url = r, "http://"+r.Addr()
	t.Cleanup(b.stop)
	return b
}

func (b *testbed) launch(c simulated.Config) *simulated.Server {
	b.t.Helper()
	e, err := simulated.New(c)
	if err == nil {
		err = e.Start(limit(b.t))
	}
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(e.Stop)
	return e
}

// steered makes placement certain: the first engine of each role is always the cheapest.
func steered(c *Config) {
	for i := range c.Profiles.Rows {
		if r := &c.Profiles.Rows[i]; strings.HasSuffix(r.IID, "1") {
			r.TTFTC += 0.1
			r.TPOTIntercept += 0.01
		}
	}
	c.Fleet.Engine.Tokenize = false
	c.Fleet.Engine.FirstTokenTimeoutS, c.Fleet.Engine.DecodeReadTimeoutS, c.Fleet.Serving.PrefillTimeoutS, c.Fleet.Serving.RequestTimeoutS = 60, 60, 60, 90
	c.Fleet.Engine.HealthTimeoutS, c.Fleet.Engine.ConnectTimeoutS = 15, 15
	c.Fleet.SLO = fleet.SLO{TTFTS: 60, TPOTS: 1}
	unswept(c)
}

// patience sets how long a router waits for tokens.
func patience(s float64) tweak {
	return func(c *Config) { c.Fleet.Engine.FirstTokenTimeoutS, c.Fleet.Engine.DecodeReadTimeoutS = s, s }
}

// unsplit is the right text of a completion: one engine's answer to the whole request.
func (b *testbed) unsplit(iid string, request map[string]any) string {
	b.t.Helper()
	whole := map[string]any{}
	for k, v := range request {
		whole[k] = v
	}
	whole["stream"] = false
	a := post(b.t, limit(b.t), b.engine(iid).URL()+"/v1/completions", whole)
	if a.status != 200 {
		b.t.Fatalf("unsplit: %d %s", a.status, a.body)
	}
	return text(b.t, a.body)
}

// idle waits until no engine holds anything.
func (b *testbed) idle() error {
	late := time.Now().Add(15 * time.Second)
	for tick := time.NewTicker(10 * time.Millisecond); ; <-tick.C {
		var errs []error
		for i, e := range b.engines {
			if a := e.Account(); !a.Idle() {
				errs = append(errs, fmt.Errorf("engine %s still holds %+v", b.router.set.Fleet.Engines[i].IID, a))
			}
		}
		if len(errs) == 0 || time.Now().After(late) {
			tick.Stop()
			return errors.Join(errs...)
		}
	}
}
