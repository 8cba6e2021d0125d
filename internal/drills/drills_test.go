package drills

import (
	"cmp"
	"os"
	"strings"
	"testing"
)

// TestDrills provokes the faults of the table on a sandbox: the short ones, or with
// NARWHAL_DRILLS=all every one. NARWHAL_DRILLS=PREFIX provokes those whose id begins so.
func TestDrills(t *testing.T) {
	l := &ledger{}
	// Groups of stages have a sandbox each and run at once: most of their time is waiting.
	t.Run("sandbox", func(t *testing.T) {
		for _, stages := range []string{"0AB", "CD", "EFG"} {
			t.Run(stages, func(t *testing.T) {
				t.Parallel()
				group(t, l, stages)
			})
		}
	})
	t.Run("openssh", func(t *testing.T) { spaces(t, l) })
	t.Run("systemd", func(t *testing.T) { managed(t, l) })
	l.judge(t)
	if os.Getenv("NARWHAL_DRILLS") == "all" {
		l.write(t)
	}
}

// group drills the wanted faults of some stages; 0 is the fleet that was never run.
func group(t *testing.T, l *ledger, stages string) {
	todo := map[string][]fault{}
	last := ""
	for _, f := range table() {
		stage := cmp.Or(f.stage, "0")
		if wanted(f) && !f.space && !f.booted && strings.Contains(stages, stage) {
			todo[stage] = append(todo[stage], f)
			last = max(last, stage)
		}
	}
	if last == "" {
		t.Skip("no fault is wanted")
	}
	w := newWorld(t, 2)
	before := ""
	for _, stage := range []string{"0", "A", "B", "C", "D", "E", "F", "G"} {
		if stage != "0" {
			w.t = t
			w.before(before)
			w.reach(before, stage)
			before = stage
		}
		for _, f := range todo[stage] {
			t.Run(f.id, func(t *testing.T) {
				if f.needs != nil && f.needs() != "" {
					t.Skip(f.needs())
				}
				w.t = t
				w.before(f.stage)
				r := w.drill(f)
				l.add(t, r)
				w.after(f)
			})
		}
		if stage == last {
			return
		}
	}
}

// before makes the hosts as they are after a stage.
func (w *world) before(stage string) {
	switch stage {
	case "", "A":
		for _, h := range w.sbx.Hosts {
			must(w.t, os.RemoveAll(h.Root))
		}
	case "B":
		w.stop()
	}
}

// after brings a live fleet back: the command that failed must pass now.
func (w *world) after(f fault) {
	w.write(w.doc)
	if f.stage < "B" || f.still {
		return
	}
	w.reach(f.stage, f.stage)
}
