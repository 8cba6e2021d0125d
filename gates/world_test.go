package gates

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/fleet/remote"
	"github.com/narwhal-fleet/narwhal/gates/record"
)

// world is one scripted host and what is on it. A command that it does not know fails
// the test.
type world struct {
	t testing.TB

	mu      sync.Mutex
	policy  func(remote.Operation) error
	boot    string
	route   string
	proc    *Launched         // what runs as engine-e
	pid     int               // of the last launch
	files   map[string]string // path → digest
	lease   string            // holder of the lease
	expired string            // holder of one that ended, until it is taken
	calls   []string
	fail    map[string]error  // by call: what it answers instead
	after   map[string]func() // by call: what happens once it has taken effect
	offline error
	closed  int
}

func newWorld(t testing.TB) *world {
	return &world{t: t, boot: "boot-1", route: "eth1 192.0.2.11", files: map[string]string{}, fail: map[string]error{}, after: map[string]func(){}}
}

func (w *world) Run(ctx context.Context, c remote.Command) (remote.Result, error) {
	op := remote.Operation{Kind: remote.KindRun, Host: "h1", Argv: c.Argv, Script: c.Script, Limit: c.Limit}
	if err := w.policy(op); err != nil {
		return remote.Result{Code: -1}, &remote.PolicyError{Operation: op, Err: err}
	}
	if c.Limit <= 0 {
		w.t.Errorf("a command without a limit: %q %q", c.Argv, c.Script)
	}
	name := nameOf(c)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls = append(w.calls, name)
	if err := w.fail[name]; err != nil {
		return remote.Result{Code: 1, Stderr: []byte("narwhal: error: scripted\n")}, err
	}
	if err := ctx.Err(); err != nil {
		return remote.Result{Code: -1}, context.Cause(ctx)
	}
	out, code := w.answer(name, c)
	if f := w.after[name]; f != nil {
		f()
	}
	if code != 0 {
		return remote.Result{Code: code, Stdout: out}, &remote.ExitError{Host: "h1", Command: name, Code: code}
	}
	return remote.Result{Stdout: out}, nil
}

// nameOf is a short name of a command: the host verb, or what its script is for.
func nameOf(c remote.Command) string {
	switch {
	case len(c.Argv) > 2 && c.Argv[1] == "host":
		return c.Argv[2]
	case strings.Contains(c.Script, "host observe"):
		return "observe"
	case strings.Contains(c.Script, ".lease.$$"):
		return "lease"
	case strings.Contains(c.Script, `f=/opt/n/lease`):
		return "release-lease"
	case strings.Contains(c.Script, "sha256sum"):
		return "digest"
	case strings.HasPrefix(c.Script, "probe "):
		return "probe"
	}
	return fmt.Sprintf("unknown %q %.200q", c.Argv, c.Script)
}

// answer does what the command says.
func (w *world) answer(name string, c remote.Command) (out []byte, code int) {
	switch name {
	case "probe":
		return []byte("boot=" + w.boot), 0
	case "observe":
		facts := map[string]string{"boot": w.boot, "route/h2": w.route}
		if w.proc != nil {
			facts["proc/engine-e/id"], facts["proc/engine-e/launch"] = w.proc.ID, w.proc.Launch
		}
		return mustJSON(Seen{Facts: facts}), 0
	case "lease":
		if w.lease != "" && w.lease != "op" {
			return []byte("1800000000\n" + w.lease + "\n"), exitHeld
		}
		if w.lease == "" && strings.Contains(c.Script, "[ 1 -eq 1 ]") {
			return []byte("0\n\n"), exitHeld
		}
		w.lease = "op"
		if who := w.expired; who != "" {
			w.expired = ""
			return []byte("taken\n1800000000\n" + who + "\n"), 0
		}
	case "release-lease":
		w.lease = ""
	case "launch":
		w.pid++
		w.proc = &Launched{Name: "engine-e", ID: fmt.Sprint("boot-1:", w.pid, ":7"), PID: w.pid, Launch: c.Argv[3]}
		return mustJSON(w.proc), 0
	case "status":
		if w.proc == nil || w.proc.Launch != c.Argv[3] {
			return nil, exitUndone
		}
	case "stop":
		was := w.proc != nil
		w.proc = nil
		return mustJSON(map[string]any{"name": "engine-e", "was_running": was}), 0
	case "live":
		return mustJSON(map[string]any{"live": w.proc}), 0
	case "digest":
		for path, digest := range w.files {
			if strings.Contains(c.Script, path) && strings.Contains(c.Script, digest) {
				return nil, 0
			}
		}
		return nil, exitUndone
	default:
		w.t.Errorf("not scripted: %s", name)
		return nil, 127
	}
	return []byte("{}"), 0
}

func (w *world) Put(_ context.Context, f remote.File) (remote.Written, error) {
	op := remote.Operation{Kind: remote.KindPut, Host: "h1", Path: f.Path, SHA256: f.SHA256}
	if err := w.policy(op); err != nil {
		return remote.Written{}, &remote.PolicyError{Operation: op, Err: err}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls = append(w.calls, "put "+f.Path)
	if err := w.fail["put"]; err != nil {
		return remote.Written{}, err
	}
	w.files[f.Path] = f.SHA256
	if f := w.after["put"]; f != nil {
		f()
	}
	return remote.Written{SHA256: f.SHA256}, nil
}

func (w *world) Get(context.Context, string, int64) ([]byte, error) {
	return nil, w.unscripted("get")
}

func (w *world) Dial(context.Context, string, string) (net.Conn, error) {
	return nil, w.unscripted("dial")
}

func (w *world) Tunnel(context.Context, string, string) (*remote.Tunnel, error) {
	return nil, w.unscripted("tunnel")
}

func (w *world) unscripted(what string) error {
	w.t.Errorf("not scripted: %s", what)
	return errors.New("not scripted")
}

func (w *world) Close() error { w.closed++; return nil }

// took returns the calls since the last look and forgets them.
func (w *world) took() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.calls
	w.calls = nil
	return c
}

// restart replaces the process, launched alike or not.
func (w *world) restart(launch string) {
	w.pid++
	w.proc = &Launched{Name: "engine-e", ID: fmt.Sprint("boot-1:", w.pid, ":9"), PID: w.pid, Launch: launch}
}

// first is a gate that observes.
type first struct{}

func (first) Info() Info { return Info{Letter: "A", Name: "first", Title: "First"} }
func (first) Expect(fleet.Fleet) []record.Key {
	return []record.Key{"A/inputs", "A/host/h1"}
}

func (first) Plan(_ context.Context, v View) (Plan, error) {
	var p Plan
	if v.Wants("A/inputs") {
		p.Steps = append(p.Steps, Step{ID: "A/inputs", Effect: Observe, Yields: "A/inputs", Local: &LocalCall{Op: "freeze"}, Limit: second})
	}
	if v.Wants("A/host/h1") {
		p.Steps = append(p.Steps, Step{ID: "A/host", Host: "h1", Effect: Observe, Yields: "A/host/h1", Media: "text/plain", Script: "probe h1", Limit: second})
	}
	return p, nil
}

func (first) Locals() map[string]Local {
	return map[string]Local{"freeze": func(_ context.Context, env Env, _ json.RawMessage) ([]byte, error) {
		v := env.View()
		return json.Marshal(map[string]any{"fleet": v.Fleet, "release": v.Release})
	}}
}

func (first) Facts(k record.Key, data []byte) map[string]string {
	if boot, ok := strings.CutPrefix(string(data), "boot="); ok && k == "A/host/h1" {
		return map[string]string{"host/h1/boot": boot}
	}
	return nil
}

func (first) Judge(v View) []record.Finding {
	if b, err := v.Evidence("A/host/h1"); err == nil && string(b) == "boot=bad" {
		return []record.Finding{{Code: "bad-boot", Host: "h1", Message: "a bad boot"}}
	}
	return nil
}

// third is a gate that changes its host: a file, and a process that a later step looks at.
type third struct{}

func (third) Info() Info { return Info{Letter: "C", Name: "third", Title: "Third"} }
func (third) Expect(fleet.Fleet) []record.Key {
	return []record.Key{"C/launch/e", "C/live/e"}
}

const (
	second  = fleet.Duration(time.Second)
	binary  = "/opt/n/narwhal"
	thePath = "/opt/n/etc/e.json"
)

func verb(name string, args ...string) []string {
	return append([]string{binary, "host", name}, args...)
}

func (third) Plan(_ context.Context, v View) (Plan, error) {
	var p Plan
	var before []string
	if v.Wants("C/launch/e") {
		launch := v.Facts["fleet/launch/e"]
		p.Steps = []Step{
			{ID: "C/file", Host: "h1", Effect: Mutate, File: TextFile(thePath, 0o600, []byte(v.Fleet.Model)), Limit: second},
			{ID: "C/launch", Host: "h1", Engine: "e", Effect: Mutate, Argv: verb("launch", launch), Check: verb("status", launch), Yields: "C/launch/e", Limit: second,
				Needs: []string{"C/file"}, Undo: &Undo{Title: "stop engine-e", Argv: verb("stop"), Limit: second, Stops: "engine-e"}},
		}
		before = []string{"C/launch"}
	}
	if v.Wants("C/live/e") || v.Wants("C/launch/e") {
		p.Steps = append(p.Steps, Step{ID: "C/live", Host: "h1", Effect: Observe, Argv: verb("live"), Yields: "C/live/e", Limit: second, Needs: before})
	}
	return p, nil
}

func (third) Facts(k record.Key, data []byte) map[string]string {
	var l Launched
	if k != "C/launch/e" || json.Unmarshal(data, &l) != nil {
		return nil
	}
	return l.ProcessFacts()
}

func (third) Judge(v View) []record.Finding {
	var l struct{ Live *Launched }
	if v.Decode("C/live/e", &l) == nil && l.Live == nil {
		return []record.Finding{{Code: "dead", Engine: "e", Message: "nothing runs", Hint: "look"}}
	}
	return nil
}
