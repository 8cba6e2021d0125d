package engines

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
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

// LiveRequest waits for an engine to answer and to generate.
type LiveRequest struct {
	Root   string         `json:"root"`
	Name   string         `json:"name"`
	URL    string         `json:"url"`
	Model  string         `json:"model"`
	Within fleet.Duration `json:"within"`
}

// Live is what an engine says of itself. Ready is false when it did not generate in
// time; Reason and Log then say why.
type Live struct {
	Ready        bool           `json:"ready"`
	Reason       string         `json:"reason,omitempty"`
	Log          string         `json:"log,omitempty"`
	Version      string         `json:"version"`
	Models       []engine.Model `json:"models"`
	ProcessStart float64        `json:"process_start"` // seconds since the epoch, as the engine reports it
	PID          int            `json:"pid"`
	BootID       string         `json:"boot_id"`
	Ticks        uint64         `json:"start_ticks"`
	Launch       string         `json:"launch"`
	ProbeText    string         `json:"probe_text"`
	ProbeTokens  []int          `json:"probe_tokens"`
	WaitedMS     int64          `json:"waited_ms"`
}

// CacheRequest asks for an engine's cache layout. Geometry is what the fleet's contract
// says, nil where it does not; it counts only where the engine tells none.
type CacheRequest struct {
	URL      string           `json:"url"`
	Geometry *engine.Geometry `json:"geometry,omitempty"`
}

// HostVerbs are what gate C asks of the binary on a host.
func HostVerbs() map[string]gates.HostVerb {
	return map[string]gates.HostVerb{
		"ports":        gates.Answer(ports),
		"engine-live":  gates.Answer(live),
		"engine-cache": gates.Answer(cache),
	}
}

func ports(_ context.Context, q PortsRequest) (Ports, error) {
	ours, taken := gates.TryListen(q)
	if taken == nil {
		taken = []gates.Taken{}
	}
	return Ports{Checked: q.Listen, Taken: taken, Ours: ours}, nil
}

const (
	probePrompt = "The narwhal surfaces where the ice"
	probeTokens = 8
	askLimit    = 5 * time.Second
)

// live watches the process and its port until the engine generates or the time is up.
func live(ctx context.Context, q LiveRequest) (Live, error) {
	begin := time.Now()
	client, err := engine.NewClient(q.URL, engine.Options{})
	if err != nil {
		return Live{}, err
	}
	defer client.Close()
	rec, ok := process.Read(filepath.Join(q.Root, gates.DirRun), q.Name)
	out := Live{PID: rec.PID, BootID: rec.BootID, Ticks: rec.StartTicks, Launch: rec.Launch, Models: []engine.Model{}, ProbeTokens: []int{}}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		if !ok || !rec.Alive() {
			out.Reason = "the process has ended"
			break
		}
		if out.Reason = ask(ctx, client, q.Model, &out); out.Reason == "" {
			if out.Ready = rec.Alive(); !out.Ready {
				out.Reason = "another process answers on its address"
			}
			break
		}
		if len(out.Models) > 0 && !serves(out.Models, q.Model) {
			break // waiting does not change what it serves
		}
		if time.Since(begin) > q.Within.D() {
			out.Reason = fmt.Sprintf("not ready within %s: %s", q.Within, out.Reason)
			break
		}
		select {
		case <-ctx.Done():
			return out, ctx.Err()
		case <-tick.C:
		}
	}
	if !out.Ready {
		out.Log = process.Tail(rec.Log, 2000)
	}
	out.WaitedMS = time.Since(begin).Milliseconds()
	return out, nil
}

// ask fills in what the engine says; it returns why the engine is not ready, "" when it is.
func ask(ctx context.Context, c *engine.Client, model string, out *Live) string {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	if err := c.Health(ctx); err != nil {
		return err.Error()
	}
	id, err := c.Identity(ctx)
	if err != nil {
		return err.Error()
	}
	out.Version, out.ProcessStart = id.Version, id.ProcessStart
	if out.Models, err = c.Models(ctx); err != nil {
		return err.Error()
	}
	if !serves(out.Models, model) {
		return fmt.Sprintf("it serves %s, not %s", names(out.Models), model)
	}
	done, err := c.Complete(ctx, engine.CompletionRequest{Model: model, Prompt: probePrompt, MaxTokens: probeTokens, IgnoreEOS: true})
	if err != nil {
		return err.Error()
	}
	if len(done.TokenIDs) == 0 && done.Text == "" {
		return "it generated nothing"
	}
	out.ProbeText, out.ProbeTokens = engine.Printable(done.Text, 256), done.TokenIDs
	return ""
}

func cache(ctx context.Context, q CacheRequest) (engine.CacheLayout, error) {
	c, err := engine.NewClient(q.URL, engine.Options{})
	if err != nil {
		return engine.CacheLayout{}, err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	l, err := c.CacheLayout(ctx)
	if err != nil {
		return l, err
	}
	return declared(l, q.Geometry), nil
}
