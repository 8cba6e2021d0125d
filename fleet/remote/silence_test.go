package remote

import (
	"testing"
	"time"
)

func TestSilence(t *testing.T) {
	type tick struct {
		after time.Duration
		in    int64
		asked bool
	}
	on, late := time.Second, 4*time.Second
	for _, c := range []struct {
		name  string
		ticks []tick
		want  int
	}{
		{"nobody asked", []tick{{on, 0, false}, {on, 0, false}}, 0},
		{"silent", []tick{{on, 0, false}, {on, 0, true}, {on, 0, true}}, 2},
		{"bytes come", []tick{{on, 0, true}, {on, 7, true}, {on, 7, true}}, 1},
		{"this process slept", []tick{{on, 0, true}, {late, 0, true}, {late, 0, true}}, 1},
		{"and then the server", []tick{{late, 0, true}, {on, 0, true}, {on, 0, true}}, 2},
	} {
		now := time.Unix(0, 0)
		s, got := silence{interval: on, last: now}, 0
		for _, k := range c.ticks {
			now = now.Add(k.after)
			got = s.tick(now, k.in, k.asked)
		}
		if got != c.want {
			t.Errorf("%s: %d silent intervals, want %d", c.name, got, c.want)
		}
	}
}
