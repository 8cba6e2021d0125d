package drills

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// TestInstallResumes cuts gate B off, by its connection to a host at a number of bytes and by
// the death of the workstation's process at a number of events, and runs it again: the
// release is whole, runs, and nothing of the cut is left.
func TestInstallResumes(t *testing.T) {
	w := newWorld(t, 2)
	w.reach("", "A")
	info, err := os.Stat(w.bin)
	must(t, err)
	cuts := map[string]func(state string) ran{}
	for _, n := range []int64{1, 6 << 10, 12 << 10, 1 << 20, info.Size() / 2, info.Size() + 10<<10, info.Size() + 14<<10, info.Size() + 20<<10} {
		cuts[fmt.Sprintf("%d bytes", n)] = func(state string) ran {
			w.sbx.Server(1).CutAfter(n)
			defer w.sbx.Server(1).CutAfter(0)
			return w.run(state, nil, "gate", "run", "B", "-f", w.fleet, "--yes", "--format", "json")
		}
	}
	for n := 2; n < 42; n += 5 {
		cuts[fmt.Sprintf("%d events", n)] = func(state string) ran {
			return w.run(state, []string{fmt.Sprintf("NARWHAL_CRASH_AFTER=%d", n)}, "gate", "run", "B", "-f", w.fleet, "--yes", "--format", "json")
		}
	}
	interrupted := 0
	for name, cut := range cuts {
		t.Run(name, func(t *testing.T) {
			w.t = t
			w.before("A")
			state := w.copyState("A")
			if r := cut(state); r.exit != 0 {
				interrupted++
			}
			if r := w.run(state, nil, "gate", "run", "B", "-f", w.fleet, "--yes", "--format", "json"); r.exit != 0 {
				t.Fatalf("again: exit %d\n%s\n%s", r.exit, tail(r.out), tail(r.err))
			}
			if r := w.run(state, nil, "gate", "verify", "-f", w.fleet); r.exit != 0 {
				t.Errorf("verify: exit %d\n%s", r.exit, tail(r.err))
			}
			for _, h := range w.sbx.Hosts {
				now, err := os.Stat(filepath.Join(h.Root, "current", "narwhal"))
				if err != nil || now.Size() != info.Size() || now.Mode().Perm() != 0o755 {
					t.Errorf("%s: the release: %v", h.ID, err)
				}
				for _, pattern := range []string{"install.lock", ".install*", "releases/*/.*"} {
					if left, _ := filepath.Glob(filepath.Join(h.Root, pattern)); len(left) > 0 {
						t.Errorf("%s: left %v", h.ID, left)
					}
				}
			}
		})
	}
	w.t = t
	if interrupted < len(cuts)*3/4 {
		t.Errorf("%d of %d cuts interrupted anything", interrupted, len(cuts))
	}
}
