package remote

import (
	"io/fs"
	"slices"
	"time"
)

// Kind is what an operation does.
type Kind string

// Kinds of operations.
const (
	KindRun    Kind = "run"
	KindPut    Kind = "put"
	KindGet    Kind = "get"
	KindDial   Kind = "dial"
	KindTunnel Kind = "tunnel"
)

// Operation is one thing that a caller asks of a host, as the policy and the trace see it.
// It holds names of secrets, never their values. A put implies reading the digests of its
// target and of its temporary file on the host, and removing the latter; a tunnel implies a
// dial for each of its connections. Neither is shown on its own.
type Operation struct {
	Kind Kind
	Host string
	// Of a run.
	Argv        []string
	Script      string
	Env         map[string]string
	SecretNames []string // sorted
	StdinBytes  int
	Limit       time.Duration
	Stay        bool
	// Of a put or get.
	Path   string
	Mode   fs.FileMode
	SHA256 string // of a put: hex
	Max    int64  // of a get: bytes
	// Of a dial or tunnel.
	Address string
	// Local end of a tunnel.
	Local string
}

// Outcome is how an operation ended. Bytes are those of output, of the file's parts that
// were sent, or of the file that was got.
type Outcome struct {
	Err      error
	Code     int
	Bytes    int64
	Duration time.Duration
}

func (h *Host) permit(op Operation) error {
	if h.opts.Policy == nil {
		return nil
	}
	if err := h.opts.Policy(op); err != nil {
		return &PolicyError{Operation: op, Err: err}
	}
	return nil
}

// trace reports an operation that has ended; started is its beginning.
func (h *Host) trace(op Operation, started time.Time, out Outcome) {
	if h.opts.Trace == nil {
		return
	}
	out.Duration = h.opts.Now().Sub(started)
	h.opts.Trace(op, out)
}

func (c Command) operation(host string) Operation {
	names := make([]string, 0, len(c.SecretEnv))
	for name := range c.SecretEnv {
		names = append(names, name)
	}
	slices.Sort(names)
	return Operation{
		Kind: KindRun, Host: host, Argv: c.Argv, Script: c.Script, Env: c.Env, SecretNames: names,
		StdinBytes: len(c.Stdin), Limit: c.Limit, Stay: c.Stay,
	}
}
