package engines

import (
	"slices"
	"strings"

	"github.com/narwhal-fleet/narwhal/fleet"
)

// turns orders launches: an engine measures the free memory of its GPUs while it starts, so
// two that may share one start after each other.
type turns struct{ taken []turn }

type turn struct {
	host  string
	gpus  []string // nil = any of the host's
	until string   // the step after which the next one may start
}

// after returns the steps that the launch of a rank waits for.
func (t *turns) after(r fleet.Resolved) []string {
	mine, some := gpusOf(r)
	if !some {
		return nil
	}
	var out []string
	for _, o := range t.taken {
		if o.host == r.Host && overlap(o.gpus, mine) && !slices.Contains(out, o.until) {
			out = append(out, o.until)
		}
	}
	return out
}

// take notes that a rank starts and that it has until the step.
func (t *turns) take(r fleet.Resolved, until string) {
	if gpus, some := gpusOf(r); some {
		t.taken = append(t.taken, turn{r.Host, gpus, until})
	}
}

// overlap reports whether two launches may share a GPU. An index, a GPU's UUID and that of a slice say nothing of
// each other, so that each may be the other.
func overlap(a, b []string) bool {
	if a == nil || b == nil {
		return true
	}
	return slices.ContainsFunc(a, func(g string) bool {
		return slices.ContainsFunc(b, func(o string) bool { return g == o || form(g) != form(o) })
	})
}

// form tells how a GPU is named.
func form(name string) string {
	switch {
	case strings.Trim(name, "0123456789") == "":
		return "index"
	case strings.HasPrefix(name, "MIG-"):
		return "slice"
	}
	return "device"
}

// gpusOf returns the GPUs that a launch sees, nil for any; false when it sees none.
func gpusOf(r fleet.Resolved) ([]string, bool) {
	switch {
	case r.Kind == fleet.LaunchSimulated && r.Shared == "":
		return nil, false
	case r.Shared != "":
		return []string{r.Shared}, true
	case len(r.GPUs) > 0:
		return r.GPUs, true
	}
	for _, name := range fleet.VisibleDevices {
		v, ok := r.Env[name]
		if !ok {
			continue
		}
		if v = strings.TrimSpace(v); v == "" || v == "-1" {
			return nil, false
		}
		return strings.Split(strings.ReplaceAll(v, " ", ""), ","), true
	}
	return nil, true
}
