package engines

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/engines/cause"
	"github.com/narwhal-fleet/narwhal/internal/process"
	"github.com/narwhal-fleet/narwhal/runtime/engine"
	"github.com/narwhal-fleet/narwhal/runtime/engine/sglang"
	"github.com/narwhal-fleet/narwhal/runtime/engine/vllm"
)

// LiveRequest waits for an engine to answer and to generate.
type LiveRequest struct {
	Root   string         `json:"root"`
	Name   string         `json:"name"`
	URL    string         `json:"url"`
	Model  string         `json:"model"`
	Within fleet.Duration `json:"within"`
	// Unit is what the process runs in besides its session; see Holder.
	Unit Holder `json:"unit,omitzero"`
	// Key names the variable that holds the engine's key, "" for none.
	Key string `json:"key,omitempty"`
	// Dialect is the fleet's; "" is vLLM's.
	Dialect string `json:"dialect,omitempty"`
	// Joins watches a further rank, which answers nothing: until the engine at URL is healthy.
	Joins bool `json:"joins,omitempty"`
}

// proberOf asks an engine in its dialect.
func proberOf(dialect string) engine.Prober {
	if dialect == sglang.Name {
		return sglang.New()
	}
	return vllm.New()
}

// keyed are a client's options with the key that a variable holds.
func keyed(variable string) engine.Options {
	if variable == "" {
		return engine.Options{}
	}
	return engine.Options{Key: fleet.NewSecret(os.Getenv(variable))}
}

// Live is what an engine says of itself. Ready is false when it did not generate in
// time; Reason, Cause and Log then say why.
type Live struct {
	Ready  bool   `json:"ready"`
	Reason string `json:"reason,omitempty"`
	// Cause is what its log tells, nil where it tells nothing that is known.
	Cause        *cause.Found   `json:"cause,omitempty"`
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

const (
	probePrompt = "The narwhal surfaces where the ice"
	probeTokens = 8
	askLimit    = 5 * time.Second
	lookEvery   = 50 * time.Millisecond
	// settle is how long an engine may still run after a line behind which none goes on.
	settle = 3 * time.Second
)

// live watches the process, its log and its port until the engine generates, cannot any
// more, or the time is up. A process that ends and a line that tells why are noticed while
// the engine is being asked.
func live(ctx context.Context, q LiveRequest) (Live, error) {
	begin := time.Now()
	client, err := engine.NewClient(q.URL, keyed(q.Key))
	if err != nil {
		return Live{}, err
	}
	defer client.Close()
	rec, ok := process.Read(filepath.Join(q.Root, gates.DirRun), q.Name)
	out := Live{PID: rec.PID, BootID: rec.BootID, Ticks: rec.StartTicks, Launch: rec.Launch, Models: []engine.Model{}, ProbeTokens: []int{}}
	w := &watch{q: q, rec: rec, known: ok, log: logTail{path: rec.Log, at: rec.LogFrom}, oom: oomKills(), begin: begin}
	asking, stop := context.WithCancel(ctx)
	answers := make(chan answer)
	gone := make(chan struct{})
	begun := out // the watch writes out meanwhile
	go func() {
		defer close(gone)
		askOn(asking, client, q, begun, answers)
	}()
	err = w.until(ctx, answers, &out)
	stop()
	<-gone
	if err != nil {
		return out, err
	}
	if !out.Ready {
		out.Log = process.Tail(rec.Log, 2000)
		out.Cause = w.why(ctx)
	}
	if out.Ready && out.ProcessStart == 0 && ok { // its dialect does not tell
		if out.ProcessStart, err = process.StartedAt(rec.StartTicks); err != nil {
			return out, err
		}
	}
	out.WaitedMS = time.Since(begin).Milliseconds()
	return out, nil
}
