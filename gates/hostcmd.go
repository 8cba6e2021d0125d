package gates

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path"
	"path/filepath"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/internal/process"
)

// HostVerb is what the installed binary does on a host: one JSON request in, one JSON
// answer out.
type HostVerb func(ctx context.Context, request json.RawMessage) (any, error)

// Answer makes a verb of a function with typed request and answer.
func Answer[Q, A any](do func(context.Context, Q) (A, error)) HostVerb {
	return func(ctx context.Context, raw json.RawMessage) (any, error) {
		var q Q
		if err := json.Unmarshal(raw, &q); err != nil {
			return nil, fmt.Errorf("read request: %w", err)
		}
		return do(ctx, q)
	}
}

// HostCommand is the argv that asks the installed binary of a host.
func HostCommand(f fleet.Fleet, host, verb string, request any) []string {
	return []string{path.Join(f.Deploy.Hosts[host].Root, LinkCurrent, "narwhal"), "host", verb, string(mustJSON(request))}
}

// LaunchRequest starts a process that outlives the connection.
type LaunchRequest struct {
	Root string       `json:"root"`
	Spec process.Spec `json:"spec"`
	// Replace stops whatever else runs under the name first, within this time.
	Replace fleet.Duration `json:"replace,omitempty"`
}

// Launched is a started process. Its id and launch are facts.
type Launched struct {
	Name    string    `json:"name"`
	ID      string    `json:"id"`
	Launch  string    `json:"launch"`
	PID     int       `json:"pid"`
	BootID  string    `json:"boot_id"`
	Ticks   uint64    `json:"start_ticks"`
	Started time.Time `json:"started"`
	Log     string    `json:"log"`
	// Spec is the digest of what was run, as the host recorded it; "" of earlier versions.
	Spec string `json:"spec_sha256,omitempty"`
}

func launched(r process.Record) Launched {
	return Launched{Name: r.Name, ID: r.Identity.String(), Launch: r.Launch, PID: r.PID, BootID: r.BootID, Ticks: r.StartTicks, Started: r.Started, Log: r.Log, Spec: r.SpecDigest}
}

// ProcessFacts are the facts of a started process.
func (l Launched) ProcessFacts() map[string]string {
	return map[string]string{"proc/" + l.Name + "/id": l.ID, "proc/" + l.Name + "/launch": l.Launch}
}

// StopRequest ends a process by its recorded identity.
type StopRequest struct {
	Root   string         `json:"root"`
	Name   string         `json:"name"`
	Within fleet.Duration `json:"within"`
}

// StatusRequest asks whether a launch runs.
type StatusRequest struct {
	Root   string `json:"root"`
	Name   string `json:"name"`
	Launch string `json:"launch"`
}

// ErrUndone is returned by checks: the effect is not there.
var ErrUndone = errors.New("not there")

// ProcessVerbs are the host verbs about processes and the live look.
func ProcessVerbs() map[string]HostVerb {
	return map[string]HostVerb{
		"observe": Answer(func(_ context.Context, l Looking) (Seen, error) { return Look(l) }),
		"launch":  Answer(launch),
		"free":    Answer(free),
		"drain":   Answer(drain),
		"stop": Answer(func(ctx context.Context, q StopRequest) (process.Stopped, error) {
			return process.Stop(ctx, filepath.Join(q.Root, DirRun), q.Name, q.Within.D())
		}),
		"status": Answer(func(_ context.Context, q StatusRequest) (Launched, error) {
			r, ok := process.Read(filepath.Join(q.Root, DirRun), q.Name)
			if !ok || !r.Alive() || r.Launch != q.Launch {
				return Launched{}, ErrUndone
			}
			return launched(r), nil
		}),
		"absent": Answer(func(_ context.Context, q StatusRequest) (struct{}, error) {
			if r, ok := process.Read(filepath.Join(q.Root, DirRun), q.Name); ok && r.Alive() {
				return struct{}{}, ErrUndone
			}
			return struct{}{}, nil
		}),
	}
}

func launch(ctx context.Context, q LaunchRequest) (Launched, error) {
	self, err := os.Executable()
	if err != nil {
		return Launched{}, fmt.Errorf("find own binary: %w", err)
	}
	dir := filepath.Join(q.Root, DirRun)
	become := []string{self, "host", "become"}
	r, _, err := process.Start(ctx, dir, q.Spec, become)
	if errors.Is(err, process.ErrOther) && q.Replace > 0 {
		if _, err := process.Stop(ctx, dir, q.Spec.Name, q.Replace.D()); err != nil {
			return Launched{}, err
		}
		r, _, err = process.Start(ctx, dir, q.Spec, become)
	}
	if err != nil {
		return Launched{}, err
	}
	return launched(r), nil
}

// FreeRequest asks that addresses can be bound, or are held by the named process.
type FreeRequest struct {
	Root   string   `json:"root"`
	Name   string   `json:"name"`
	Listen []string `json:"listen"`
}

// Taken is an address that cannot be bound.
type Taken struct {
	Address string `json:"address"`
	Why     string `json:"why"`
}

// TryListen tries each address. When the named process runs, the addresses are ours and
// none is tried.
func TryListen(q FreeRequest) (ours bool, taken []Taken) {
	if r, ok := process.Read(filepath.Join(q.Root, DirRun), q.Name); ok && r.Alive() {
		return true, nil
	}
	for _, a := range q.Listen {
		l, err := net.Listen("tcp", a)
		if err != nil {
			why := err.Error()
			var op *net.OpError
			if errors.As(err, &op) {
				why = op.Err.Error()
			}
			taken = append(taken, Taken{Address: a, Why: why})
			continue
		}
		_ = l.Close()
	}
	return false, taken
}

// free fails with what holds an address.
func free(_ context.Context, q FreeRequest) (struct{}, error) {
	if _, taken := TryListen(q); len(taken) > 0 {
		return struct{}{}, fmt.Errorf("%s cannot listen on %s: %s; ss -ltnp on the host shows who does", q.Name, taken[0].Address, taken[0].Why)
	}
	return struct{}{}, nil
}

// FreeStep checks, before a process is started, that nobody else holds its addresses.
func FreeStep(f fleet.Fleet, id, host, name string, listen ...string) Step {
	return Step{
		ID: id, Title: "check the port of " + name, Host: host, Effect: Observe, Limit: fleet.Duration(time.Minute),
		Argv: HostCommand(f, host, "free", FreeRequest{Root: f.Deploy.Hosts[host].Root, Name: name, Listen: listen}),
	}
}

// LaunchStep is the step that starts a process on a host, checked and undone by name.
func LaunchStep(f fleet.Fleet, id, host string, spec process.Spec, stopWithin fleet.Duration) Step {
	root := f.Deploy.Hosts[host].Root
	return Step{
		ID: id, Title: "start " + spec.Name, Host: host, Effect: Mutate, Limit: fleet.Duration(time.Minute),
		Argv:  HostCommand(f, host, "launch", LaunchRequest{Root: root, Spec: spec, Replace: stopWithin}),
		Check: HostCommand(f, host, "status", StatusRequest{Root: root, Name: spec.Name, Launch: spec.Launch}),
		Undo:  StopUndo(f, host, spec.Name, stopWithin),
	}
}
