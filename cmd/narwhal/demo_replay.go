package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/narwhal-fleet/narwhal/gates/serve"
	"github.com/narwhal-fleet/narwhal/internal/problem"
	"github.com/narwhal-fleet/narwhal/runtime/replay"
)

// demoReplay is what came of the decisions of the demo's own journal.
type demoReplay struct {
	Placements  int    `json:"placements"`
	Evaluations int    `json:"evaluations"`
	Journal     string `json:"journal"`
}

// maxDemoJournal bounds the journal that is fetched from the router's host.
const maxDemoJournal = 64 << 20

// demoReplay fetches the router's journal and makes its decisions again.
func (a *app) demoReplay(ctx context.Context, s *session) (demoReplay, error) {
	var d demoReplay
	h, err := s.runner.Connect(ctx, s.fleet.Deploy.Router.Host)
	if err != nil {
		return d, err
	}
	defer h.Close()
	d.Journal = filepath.Join(filepath.Dir(a.state), "journal.jsonl")
	b, err := h.Get(ctx, serve.JournalPath(s.fleet), maxDemoJournal)
	if err != nil {
		return d, problem.Wrap(problem.Failed, "demo_journal", "fetch the router's journal", err, "look at the router's folder on its host")
	}
	if err := os.WriteFile(d.Journal, b, 0o600); err != nil {
		return d, problem.Wrap(problem.Failed, "demo_journal", "keep the router's journal", err, "free space in the demo's folder")
	}
	r, err := replay.Path(d.Journal)
	if err != nil {
		return d, problem.Wrap(problem.Failed, "demo_journal", "read the router's journal", err, "narwhal simulate --replay-decisions "+d.Journal)
	}
	d.Placements, d.Evaluations = r.Placements, r.Evaluations
	if r.Differ > 0 || r.Placements == 0 {
		return d, problem.New(problem.Unverified, "decisions_differ", fmt.Sprintf("%d of %d decisions come out another way", r.Differ, r.Placements+r.Evaluations),
			"narwhal simulate --replay-decisions "+d.Journal)
	}
	a.say("the journal replays: %d placements and %d decisions of the controller come out the same", d.Placements, d.Evaluations)
	return d, nil
}
