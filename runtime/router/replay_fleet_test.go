package router

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/runtime/journal"
	"github.com/narwhal-fleet/narwhal/runtime/profile"
)

// replayBed is a router over scripted engines.
type replayBed struct {
	*script
	engines map[string]*scriptEngine
	router  *Router
	url     string
	journal string
	client  *http.Client
	stopped bool
}

// replayRoles of the recorded fleets. A pinned role ends with "!".
var (
	rolesF1     = []string{"p0 prefill", "p1 prefill", "d0 decode", "d1 decode"}
	rolesSingle = []string{"e0 decode"}
	rolesDecode = []string{"e0 decode", "e1 decode"}
	rolesPinned = []string{"p0 prefill!", "d0 decode!"}
)

// replayFleet is the recorded fleet F1 without its engines. Its limits are long: the cases
// that run into one shorten that one.
func replayFleet(t *testing.T) fleet.Fleet {
	t.Helper()
	var f fleet.Fleet
	if err := json.Unmarshal(replayFile(t, "config/fleet-defaults.json"), &f); err != nil {
		t.Fatal(err)
	}
	f.Engines, f.Profiles.Path, f.Recovery.StatePath = nil, "", ""
	f.Controller.MonitorIntervalS = 3600 // no pass: nothing moves by itself
	f.Serving.RequestTimeoutS, f.Serving.PrefillTimeoutS, f.Serving.MaxRequestBytes = 60, 60, 65536
	f.Engine.FirstTokenTimeoutS, f.Engine.DecodeReadTimeoutS = 60, 60
	f.Serving.RetryBaseS, f.Serving.RetryCapS, f.Serving.GracefulTimeoutS = 0.001, 0.002, 5
	f.Recovery.LivenessEvery = 0
	return f
}

func replayFile(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "reference", filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// startReplay starts engines and a router. Without even, the first engine of a role is a
// little faster than the second, so that requests go where the recorded ones went.
func startReplay(t *testing.T, roles []string, even bool, tweaks ...tweak) *replayBed {
	t.Helper()
	b := &replayBed{script: newScript(t), engines: map[string]*scriptEngine{}, journal: filepath.Join(t.TempDir(), "journal.jsonl")}
	b.client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DisableCompression: true}}
	cfg := Config{Fleet: replayFleet(t), Listen: "127.0.0.1:0", JournalPath: b.journal, Logger: slog.New(slog.DiscardHandler)}
	store, err := profile.ReadStore(bytes.NewReader(replayFile(t, "profiles.json")))
	if err != nil {
		t.Fatal(err)
	}
	var rows []profile.Row
	for i, text := range roles {
		iid, role, pin := cutRole(text)
		e := b.start(iid)
		b.engines[iid] = e
		cfg.Fleet.Engines = append(cfg.Fleet.Engines, fleet.Engine{IID: iid, URL: e.server.URL, Role: role, Pin: pin})
		row := store.Rows[0]
		digest := e.digest()
		row.IID, row.GenerationDigest = iid, &digest
		if !even {
			row.TTFTC += 1e-2 * float64(i)
			row.TPOTIntercept += 1e-3 * float64(i)
		}
		rows = append(rows, row)
	}
	cfg.Profiles = profile.NewStore(nil, rows...)
	for _, tw := range tweaks {
		tw(&cfg)
	}
	b.serve(cfg)
	return b
}

func cutRole(text string) (iid string, role string, pin bool) {
	name, r, _ := bytes.Cut([]byte(text), []byte(" "))
	r, pin = bytes.CutSuffix(r, []byte("!"))
	return string(name), string(r), pin
}

func (b *replayBed) serve(cfg Config) {
	b.t.Helper()
	r, err := New(cfg)
	if err != nil {
		b.t.Fatal(err)
	}
	if err := r.Start(limit(b.t)); err != nil {
		b.t.Fatal(err)
	}
	b.router, b.url = r, "http://"+r.Addr()
	b.t.Cleanup(b.stop)
}

func (b *replayBed) stop() {
	if b.stopped {
		return
	}
	b.stopped = true
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	if err := b.router.Stop(ctx); err != nil {
		b.t.Errorf("stop: %v", err)
	}
}

// rows stops the router and returns its journal.
func (b *replayBed) rows() []journal.Row {
	b.t.Helper()
	b.stop()
	f, err := os.Open(b.journal)
	if err != nil {
		b.t.Fatal(err)
	}
	defer f.Close()
	rows, _, err := journal.ReadRows(f)
	if err != nil {
		b.t.Fatal(err)
	}
	return rows
}

// kill stops an engine as a dead process would: its port refuses.
func (b *replayBed) kill(iid string) {
	e := b.engines[iid]
	e.server.CloseClientConnections()
	e.server.Close()
}

func (b *replayBed) state() (s state) {
	b.t.Helper()
	a := b.send(replayRequest{Method: http.MethodGet, Path: "/narwhal/state"})
	if err := json.Unmarshal([]byte(a.body), &s); err != nil {
		b.t.Fatal(err)
	}
	return s
}
