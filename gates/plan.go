package gates

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates/record"
)

// Effect is what a step does to a host.
type Effect string

// Observe reads, Mutate changes a host, Disrupt interrupts what serves.
const (
	Observe Effect = "observe"
	Mutate  Effect = "mutate"
	Disrupt Effect = "disrupt"
)

// Plan is what a gate is about to do, as data.
type Plan struct {
	Gate  string `json:"gate"`
	Steps []Step `json:"steps"`
}

// Step is one action. Exactly one of Argv, Script, File, Fetch and Local is set.
type Step struct {
	ID     string `json:"id"`
	Title  string `json:"title"`
	Host   string `json:"host,omitempty"` // "" = the workstation
	Engine string `json:"engine,omitempty"`
	Effect Effect `json:"effect"`
	// Argv runs on the host; its standard output is the evidence.
	Argv []string `json:"argv,omitempty"`
	// Script runs in the host's POSIX shell, for hosts that carry nothing yet.
	Script string `json:"script,omitempty"`
	File   *File  `json:"file,omitempty"`
	// Fetch reads a file of the host.
	Fetch string     `json:"fetch,omitempty"`
	Local *LocalCall `json:"local,omitempty"`
	// Yields is the evidence that the step makes, "" for none.
	Yields record.Key `json:"yields,omitempty"`
	Media  string     `json:"media,omitempty"` // default application/json
	// Secrets become environment variables of the command, by reference.
	Secrets map[string]fleet.SecretRef `json:"secrets,omitempty"`
	Limit   fleet.Duration             `json:"limit"`
	// Needs are steps that must have succeeded first.
	Needs []string `json:"needs,omitempty"`
	// Check observes whether a mutation's effect is there: exit 0 done, 3 undone.
	Check []string `json:"check,omitempty"`
	Undo  *Undo    `json:"undo,omitempty"`
	// Exclusive names resources that no two running steps may share.
	Exclusive []string `json:"exclusive,omitempty"`
	// InOrder keeps later steps from what this one waits for. Rounds that are laid out so
	// that every host is busy stay rounds; elsewhere whoever can start does.
	InOrder bool `json:"in_order,omitempty"`
	// Last steps run at the end even when others failed (closing what the plan opened).
	Last bool `json:"last,omitempty"`
}

// File is content to place on a host.
type File struct {
	Path   string `json:"path"`
	SHA256 string `json:"sha256"`
	Bytes  int64  `json:"bytes"`
	Mode   uint32 `json:"mode"`
	// Release means the narwhal binary, Evidence a recorded document whose digest is
	// known when it is there; otherwise Content holds the text.
	Release  bool       `json:"release,omitempty"`
	Evidence record.Key `json:"evidence,omitempty"`
	Content  string     `json:"content,omitempty"`
	// KeepMode leaves the mode of a file that is there already.
	KeepMode bool `json:"keep_mode,omitempty"`
}

// TextFile makes a file of text with its digest.
func TextFile(path string, mode uint32, content []byte) *File {
	sum := sha256.Sum256(content)
	return &File{Path: path, SHA256: hex.EncodeToString(sum[:]), Bytes: int64(len(content)), Mode: mode, Content: string(content)}
}

// LocalCall names a local operation of the gate and its arguments.
type LocalCall struct {
	Op   string          `json:"op"`
	Args json.RawMessage `json:"args,omitempty"`
	// Runs are the read-only commands that the operation may run, by host.
	Runs map[string][]HostRun `json:"runs,omitempty"`
}

// HostRun is one command of a local operation.
type HostRun struct {
	Argv   []string `json:"argv,omitempty"`
	Script string   `json:"script,omitempty"`
}

// Undo takes a step's effect back.
type Undo struct {
	Title string         `json:"title"`
	Argv  []string       `json:"argv"`
	Limit fleet.Duration `json:"limit"`
	// Stops names what ends, Restores what comes back; either may be empty.
	Stops    string `json:"stops,omitempty"`
	Restores string `json:"restores,omitempty"`
}

// Digest identifies the plan: SHA-256 of its JSON.
func (p Plan) Digest() string {
	b, err := json.Marshal(p)
	if err != nil {
		panic(fmt.Sprintf("marshal plan: %v", err)) // plain data always marshals
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// validate refuses plans that could not be executed or undone.
func (p Plan) validate() error {
	seen := map[string]bool{}
	for _, s := range p.Steps {
		kinds := 0
		for _, set := range []bool{s.Argv != nil, s.Script != "", s.File != nil, s.Fetch != "", s.Local != nil} {
			if set {
				kinds++
			}
		}
		switch {
		case s.ID == "" || seen[s.ID]:
			return fmt.Errorf("check plan of gate %s: step id %q is empty or used twice", p.Gate, s.ID)
		case kinds != 1:
			return fmt.Errorf("check plan of gate %s: step %s has %d actions, want 1", p.Gate, s.ID, kinds)
		case s.Limit <= 0:
			return fmt.Errorf("check plan of gate %s: step %s has no time limit", p.Gate, s.ID)
		case s.Effect != Observe && s.Effect != Mutate && s.Effect != Disrupt:
			return fmt.Errorf("check plan of gate %s: step %s has effect %q", p.Gate, s.ID, s.Effect)
		case s.Local == nil && s.Host == "":
			return fmt.Errorf("check plan of gate %s: step %s names no host", p.Gate, s.ID)
		}
		for _, n := range s.Needs {
			if !seen[n] {
				return fmt.Errorf("check plan of gate %s: step %s needs %s, which is not an earlier step", p.Gate, s.ID, n)
			}
		}
		seen[s.ID] = true
	}
	return nil
}

// asks reports whether any step has an effect that is not allowed without approval.
func (p Plan) asks(allow []string) bool {
	for _, s := range p.Steps {
		if s.Effect != Observe && !slices.Contains(allow, string(s.Effect)) {
			return true
		}
	}
	return false
}

// Mutates reports whether any step changes a host.
func (p Plan) Mutates() bool {
	for _, s := range p.Steps {
		if s.Effect != Observe {
			return true
		}
	}
	return false
}
