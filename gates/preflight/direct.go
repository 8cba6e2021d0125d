package preflight

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/runtime/engine"
)

// Direct asks the engines of a fleet from this machine, without hosts and without a record. Its
// steps are those of the gate's own plan, its rules those of the gate's judge.
type Direct struct {
	// Fleet has its points of measuring filled in: see NewDirect.
	Fleet fleet.Fleet
	// Generation is the digest that a profile of this live process is bound to.
	Generation func(ctx context.Context, iid string, id engine.Identity) (string, error)
	// Attest judges a process by its engine's sidecar.
	Attest func(ctx context.Context, iid string, id engine.Identity) error
	// Step is told when a step begins and when it ends, one at a time.
	Step func(s gates.Step, took time.Duration, err error, ended bool)

	verbs map[string]gates.HostVerb
	live  []fleet.Engine  // in the roles of their processes, nil until AsLive asked
	away  map[string]bool // of these, the ones that did not answer
}

// DefaultPoints are where engines of a fleet without a deploy section are measured.
var DefaultPoints = fleet.Profiling{
	PrefillTokens: []int{256, 512, 1024, 2048, 4096}, PrefillRepeats: 3, DecodeRequests: []int{1, 2, 4, 8}, DecodeTokens: []int{256, 1024},
	OutputTokens: 32, PairTokens: 512, Pairs: fleet.PairsMesh, Uncertainty: fleet.DefaultUncertainty, Budget: fleet.Duration(2 * time.Minute),
}

// Limits of asking from one machine.
const (
	mostSteps  = 16 // at once
	asksWithin = 10 * time.Second
)

// NewDirect is a fleet whose engines run. Nothing of it is restarted: the restart drill is left out.
func NewDirect(f fleet.Fleet) *Direct {
	deploy := fleet.Deploy{Profile: DefaultPoints}
	if f.Deploy != nil {
		deploy = *f.Deploy
	}
	deploy.Policy.RestartDrill = false
	f.Deploy = &deploy
	return &Direct{Fleet: f, Step: func(gates.Step, time.Duration, error, bool) {}, verbs: HostVerbs()}
}

// steps of the gate's plan that make the wanted evidence on engines.
func (d *Direct) steps(wants func(record.Key) bool) (out []gates.Step) {
	for _, e := range d.asLive().Engines {
		for _, s := range engineSteps(d.seen(e.IID), e) {
			if wants(s.Yields) {
				out = append(out, s)
			}
		}
	}
	return out
}

// answer is what a step brought.
type answer struct {
	step gates.Step
	data []byte
	err  error
	took time.Duration
}

var errNotStarted = errors.New("not started: what it needs did not succeed")

// run asks steps: what one needs is done first, and no two that run share what is exclusive.
func (d *Direct) run(ctx context.Context, steps []gates.Step, ask func(context.Context, gates.Step) ([]byte, error)) []answer {
	var out []answer
	busy, failed, ended := map[string]bool{}, map[string]bool{}, map[string]bool{}
	results := make(chan answer)
	running := 0
	settle := func(a answer) {
		ended[a.step.ID], failed[a.step.ID] = true, a.err != nil
		d.Step(a.step, a.took, a.err, true)
		out = append(out, a)
	}
	for pending := steps; len(pending) > 0 || running > 0; {
		var later []gates.Step
		for _, s := range pending {
			switch {
			case ctx.Err() != nil:
				settle(answer{step: s, err: context.Cause(ctx)})
			case slices.ContainsFunc(s.Needs, func(n string) bool { return failed[n] }):
				settle(answer{step: s, err: errNotStarted})
			case running >= mostSteps, slices.ContainsFunc(s.Needs, func(n string) bool { return !ended[n] }),
				slices.ContainsFunc(s.Exclusive, func(x string) bool { return busy[x] }):
				later = append(later, s)
			default:
				for _, x := range s.Exclusive {
					busy[x] = true
				}
				running++
				d.Step(s, 0, nil, false)
				go func() { results <- timed(ctx, s, ask) }()
			}
		}
		pending = later
		if running == 0 {
			continue
		}
		a := <-results
		running--
		for _, x := range a.step.Exclusive {
			delete(busy, x)
		}
		settle(a)
	}
	return out
}

func timed(ctx context.Context, s gates.Step, ask func(context.Context, gates.Step) ([]byte, error)) answer {
	begin := time.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, s.Limit.D(), fmt.Errorf("it took longer than its limit of %v", s.Limit.D()))
	defer cancel()
	b, err := ask(ctx, s)
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w (%w)", context.Cause(ctx), err)
	}
	return answer{step: s, data: b, err: err, took: time.Since(begin)}
}

// ask is the answer to a step's command, in this process.
func (d *Direct) ask(ctx context.Context, s gates.Step) ([]byte, error) {
	if len(s.Argv) != 4 || d.verbs[s.Argv[2]] == nil {
		return nil, fmt.Errorf("ask %s: it is no command of this gate", s.ID)
	}
	v, err := d.verbs[s.Argv[2]](ctx, json.RawMessage(s.Argv[3]))
	if err != nil {
		return nil, err
	}
	return json.Marshal(v)
}

// identity asks an engine which process it is.
func (d *Direct) identity(ctx context.Context, iid string) (engine.Identity, error) {
	ctx, cancel := context.WithTimeout(ctx, asksWithin)
	defer cancel()
	dialect, c, err := d.client(iid)
	if err != nil {
		return engine.Identity{}, err
	}
	defer c.Close()
	return dialect.Identity(ctx, c)
}

// client reaches an engine. The caller closes it.
func (d *Direct) client(iid string) (engine.Dialect, *engine.Client, error) {
	dialect, err := proberOf(d.Fleet.Engine.Dialect)
	if err != nil {
		return nil, nil, err
	}
	e, _ := d.Fleet.ByID(iid)
	c, err := engine.NewClient(e.URL, keyed(d.Fleet.Engine.EngineAPIKeyEnv))
	return dialect, c, err
}

// enginesOf are the engines that a step asks.
func enginesOf(s gates.Step) (out []string) {
	for _, x := range s.Exclusive {
		if iid, ok := strings.CutPrefix(x, "engine:"); ok {
			out = append(out, iid)
		}
	}
	return out
}
