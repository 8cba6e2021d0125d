package engines

import (
	"context"
	"path/filepath"

	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/internal/process"
	"github.com/narwhal-fleet/narwhal/runtime/engine"
)

// PortsRequest asks whether addresses can be bound. Name is the process that may
// already hold them.
type PortsRequest = gates.FreeRequest

// Ports says which addresses are taken, by somebody else than the named process.
type Ports struct {
	Checked []string      `json:"checked"`
	Taken   []gates.Taken `json:"taken"`
	// Ours means that the named process runs and holds its addresses.
	Ours bool `json:"ours"`
}

// CacheRequest asks for an engine's cache layout. Geometry is what the fleet's contract
// says, nil where it does not; it counts only where the engine tells none.
type CacheRequest struct {
	Root     string           `json:"root"`
	Name     string           `json:"name"`
	URL      string           `json:"url"`
	Geometry *engine.Geometry `json:"geometry,omitempty"`
	// Key names the variable that holds the engine's key, "" for none.
	Key string `json:"key,omitempty"`
	// Dialect is the fleet's; "" is vLLM's.
	Dialect string `json:"dialect,omitempty"`
}

// HostVerbs are what gate C asks of the binary on a host.
func HostVerbs() map[string]gates.HostVerb {
	return map[string]gates.HostVerb{
		"ports":            gates.Answer(ports),
		"engine-live":      gates.Answer(live),
		"engine-listener":  gates.Answer(listener),
		"engine-container": gates.Answer(container),
		"engine-away":      gates.Answer(away),
		"engine-cache":     gates.Answer(cache),
	}
}

func ports(_ context.Context, q PortsRequest) (Ports, error) {
	ours, taken := gates.TryListen(q)
	if taken == nil {
		taken = []gates.Taken{}
	}
	return Ports{Checked: q.Listen, Taken: taken, Ours: ours}, nil
}

func cache(ctx context.Context, q CacheRequest) (Cache, error) {
	c, err := engine.NewClient(q.URL, keyed(q.Key))
	if err != nil {
		return Cache{}, err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	l, err := proberOf(q.Dialect).Layout(ctx, c)
	if err != nil {
		return Cache{}, err
	}
	rec, _ := process.Read(filepath.Join(q.Root, gates.DirRun), q.Name)
	return Cache{CacheLayout: declared(l, q.Geometry), Ranks: ranks(ctx, c, rec, q.Dialect)}, nil
}
