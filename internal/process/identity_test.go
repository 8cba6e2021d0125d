package process

import (
	"fmt"
	"testing"
)

// A first thread that looks like a zombie beside others belongs to a process that lives: it
// replaces its program, or goes on without that thread.
func TestFromStat(t *testing.T) {
	stat := func(name, state string, threads int) string {
		return fmt.Sprintf("7 (%s) %s 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 %d 0 2540593 1 2", name, state, threads)
	}
	for name, c := range map[string]struct {
		line       string
		ticks      uint64
		zombie, ok bool
	}{
		"runs": {stat("narwhal", "S", 5), 2540593, false, true}, "odd name": {stat("a) Z (b", "R", 1), 2540593, false, true},
		"ended": {stat("narwhal", "Z", 1), 0, true, false}, "replaces its program": {stat("narwhal", "Z", 2), 2540593, false, true},
		"gone": {stat("narwhal", "X", 1), 0, true, false}, "cut off": {"7 (narwhal) S 1 7", 0, false, false}, "no name": {"7 narwhal S", 0, false, false}, "empty": {"", 0, false, false},
	} {
		if ticks, zombie, ok := fromStat([]byte(c.line)); ticks != c.ticks || zombie != c.zombie || ok != c.ok {
			t.Errorf("%s: %d %v %v", name, ticks, zombie, ok)
		}
	}
}
