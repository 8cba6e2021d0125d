// Package look looks at an engine's process on its own host: container, files, command
// line, GPUs, transfer libraries, and who listens on its address.
//
// It promises that each thing is either seen or said to be unknown with the reason, that a
// look mixes no two processes, and that a file is hashed again whenever its size, times or
// inode changed. It reads /proc and files alone; only a container's runtime is asked by a
// command.
package look

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// Names of what is looked at.
const (
	Container    = "container"            // none, or the container's id and its process
	Checkpoint   = "checkpoint_sha256"    // every file of the model's folder
	Tokenizer    = "tokenizer_sha256"     // the tokenizer's files among them
	EngineConfig = "engine_config_sha256" // command line, environment, files that they name
	UCX          = "ucx_version"
	NIXL         = "nixl_version"
	Transports   = "transports"
	GPUs         = "gpus"                // UUIDs of the devices that the process has open
	Listener     = "listener"            // own, or other: who serves the engine's address
	Changed      = "changed_since_start" // none, or files of the model that changed after the process started
)

// Names lists everything that is looked at, in the order of their pages.
func Names() []string {
	return []string{Container, Checkpoint, Tokenizer, EngineConfig, UCX, NIXL, Transports, GPUs, Listener, Changed}
}

// None is the value of what is known to be absent.
const None = "none"

// Values of Listener.
const (
	Own   = "own"
	Other = "other"
)

// Watch says where to look.
type Watch struct {
	Engine    string   `json:"engine,omitempty"`    // base URL; "" leaves the listener unknown
	Container string   `json:"container,omitempty"` // RUNTIME:NAME of a container whose client is the process
	Model     string   `json:"model,omitempty"`     // folder of the checkpoint
	Tokenizer string   `json:"tokenizer,omitempty"` // "" = the model's folder
	Configs   []string `json:"configs,omitempty"`   // files that configure the engine
	Cache     string   `json:"cache,omitempty"`     // file that remembers digests, "" = none
}

// Seen is one thing: values, or why it is unknown.
type Seen struct {
	Is      []string `json:"is,omitempty"`
	Unknown string   `json:"unknown,omitempty"`
}

// Observed holds every name once.
type Observed map[string]Seen

// Limits of what is believed to be an observation.
const (
	maxValues = 1024
	maxText   = 4096
)

// Check refuses an observation that lacks a name, has another one, or leaves one open.
func (o Observed) Check() error {
	for _, name := range Names() {
		s, ok := o[name]
		switch {
		case !ok:
			return fmt.Errorf("read observation: no %s", name)
		case (len(s.Is) == 0) == (s.Unknown == ""):
			return fmt.Errorf("read observation: %s is neither seen nor unknown", name)
		case len(s.Is) > maxValues || len(s.Unknown) > maxText || slices.ContainsFunc(s.Is, func(v string) bool { return v == "" || len(v) > maxText }):
			return fmt.Errorf("read observation: %s is too long or has an empty value", name)
		}
	}
	for name := range o {
		if !slices.Contains(Names(), name) {
			return fmt.Errorf("read observation: unknown name %.40q", name)
		}
	}
	return nil
}

// Difference is one name that was seen with other values, or is unknown now.
type Difference struct{ Name, Want, Got string }

// Diff compares what was known with a later look, in the order of Names. What was unknown
// proves nothing. Transports are set up as engines meet: those seen must still be there,
// further ones may have come.
func Diff(want, got Observed) []Difference {
	var out []Difference
	for _, name := range Names() {
		w, g := want[name], got[name]
		if w.Unknown != "" || slices.Equal(w.Is, g.Is) || name == Transports && subset(w.Is, g.Is) {
			continue
		}
		out = append(out, Difference{Name: name, Want: w.text(), Got: g.text()})
	}
	return out
}

func (s Seen) text() string {
	if s.Unknown != "" {
		return "unknown: " + s.Unknown
	}
	return strings.Join(s.Is, ", ")
}

// subset reports whether what was resolved is still there; none is below everything.
func subset(want, got []string) bool {
	for _, w := range want {
		if w != None && !slices.Contains(got, w) {
			return false
		}
	}
	return len(got) > 0
}

// Observer looks at one process. Its methods may be called from many goroutines.
type Observer struct {
	watch Watch
	root  roots
	mu    sync.Mutex
	files *hashes
}

// New makes an observer of this host. It reads the file of remembered digests; with keep
// it writes it too.
func New(w Watch, keep bool) *Observer { return newObserver(w, keep, hostRoots) }

func newObserver(w Watch, keep bool, r roots) *Observer {
	return &Observer{watch: w, root: r, files: openHashes(w.Cache, keep)}
}

// ErrReplaced says that the process ended or was replaced during a look.
var ErrReplaced = errors.New("the process was replaced meanwhile")

// Look reads everything about the process that has the pid and start ticks.
func (o *Observer) Look(ctx context.Context, pid int, ticks int64) (Observed, error) {
	out := Observed{}
	main, container := o.container(ctx, pid)
	out[Container] = container
	family := o.root.family(main)
	out[EngineConfig] = o.config(main)
	out[GPUs] = o.root.gpus(family)
	out[Listener] = o.root.listener(main, family, o.watch.Engine)
	maps.Copy(out, o.root.transfer(family))
	maps.Copy(out, o.model(ctx, main))
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("look at the process: %w", err)
	}
	if now, err := o.root.ticks(pid); err != nil || now != ticks {
		return nil, fmt.Errorf("look at the process: %w", ErrReplaced)
	}
	return out, nil
}

func unknown(format string, args ...any) Seen { return Seen{Unknown: fmt.Sprintf(format, args...)} }

// seen sorts values and takes each once; none of them means None.
func seen(values ...string) Seen {
	slices.Sort(values)
	values = slices.Compact(values)
	if len(values) == 0 {
		values = []string{None}
	}
	return Seen{Is: values}
}
