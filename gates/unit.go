package gates

import (
	"os"
	"path/filepath"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/fleet/units"
	"github.com/narwhal-fleet/narwhal/internal/process"
)

// UnitOf is the unit that keeps a process of a host running, nil where narwhal starts it itself.
func UnitOf(f fleet.Fleet, host, name string) *process.Unit {
	u, ok := units.For(f, host, name)
	if !ok {
		return nil
	}
	return &process.Unit{Name: u.Name, File: u.Path, SHA256: u.SHA256, User: u.User, Boot: u.Boot}
}

// unitFacts identify the units of a host: all of them, by path and content, and by process
// what keeps it running.
func unitFacts(f fleet.Fleet, host string) (all string, keeps map[string]string) {
	list := [][2]string{}
	keeps = map[string]string{}
	for _, u := range units.Of(f, host) {
		list = append(list, [2]string{u.Path, u.SHA256})
		keeps[u.Process] = u.SHA256
	}
	return digestOf(list), keeps
}

// UnitsFact identifies the unit files of a folder by content, "none" without any.
func UnitsFact(dir string) string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "none"
	}
	lines := []string{}
	for _, e := range entries {
		if filepath.Ext(e.Name()) == ".service" && e.Type().IsRegular() {
			lines = append(lines, e.Name()+" "+fileDigest(filepath.Join(dir, e.Name())))
		}
	}
	if len(lines) == 0 {
		return "none"
	}
	return digestOf(lines)
}
