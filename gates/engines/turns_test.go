package engines

import (
	"slices"
	"testing"

	"github.com/narwhal-fleet/narwhal/fleet"
)

// Launches that may share a GPU start after each other, whatever each calls it.
func TestGPUsThatMayBeTheSame(t *testing.T) {
	on := func(host string, gpus ...string) fleet.Resolved {
		return fleet.Resolved{Host: host, Kind: fleet.LaunchProcess, GPUs: gpus}
	}
	for name, c := range map[string]struct {
		first, second fleet.Resolved
		waits         bool
	}{
		"the same index":            {on("h1", "0", "1"), on("h1", "1"), true},
		"other indices":             {on("h1", "0"), on("h1", "1"), false},
		"the same UUID":             {on("h1", "GPU-aa"), on("h1", "GPU-aa"), true},
		"other UUIDs":               {on("h1", "GPU-aa"), on("h1", "GPU-bb"), false},
		"an index beside a UUID":    {on("h1", "0"), on("h1", "GPU-aa"), true},
		"a slice beside a UUID":     {on("h1", "MIG-aa"), on("h1", "GPU-aa"), true},
		"other slices":              {on("h1", "MIG-aa"), on("h1", "MIG-bb"), false},
		"other hosts":               {on("h1", "0"), on("h2", "0"), false},
		"one that names none":       {on("h1", "0"), on("h1"), true},
		"a simulated one sees none": {on("h1", "0"), fleet.Resolved{Host: "h1", Kind: fleet.LaunchSimulated}, false},
	} {
		var order turns
		order.take(c.first, "first is ready")
		if got := order.after(c.second); slices.Contains(got, "first is ready") != c.waits {
			t.Errorf("%s: waits for %v", name, got)
		}
	}
}
