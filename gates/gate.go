// Package gates says what a gate is, holds plans as data, and runs them.
//
// It promises that nothing mutates a host without an intent on disk, that a verdict
// is passed only when every expected piece of evidence is present, fresh and judged,
// and that a run continues from its record. It refuses to know any single gate: the
// seven live in the packages below, and none imports another.
package gates

import (
	"context"
	"encoding/json"
	"net"

	"github.com/narwhal-fleet/narwhal/attest"
	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/fleet/remote"
	"github.com/narwhal-fleet/narwhal/gates/record"
)

// Info names a gate.
type Info struct {
	Letter  string // "A" … "G"
	Name    string // "discover"
	Title   string
	Promise string
}

// Gate is one promise, its evidence and its verdict.
type Gate interface {
	Info() Info
	// Expect names the evidence that the gate needs, known before the first command.
	Expect(fleet.Fleet) []record.Key
	// Plan returns the steps that make the evidence View.Wants; it never mutates.
	Plan(context.Context, View) (Plan, error)
	// Judge is pure: evidence in, findings out. A result without any but notes passes.
	Judge(View) []record.Finding
	// Facts reads live facts out of one piece of evidence; pure.
	Facts(key record.Key, data []byte) map[string]string
}

// Local is work of a step that runs on the workstation.
type Local func(ctx context.Context, env Env, args json.RawMessage) ([]byte, error)

// WithLocals is implemented by gates whose plans hold local steps.
type WithLocals interface {
	Locals() map[string]Local
}

// WithHalts is implemented by gates in which an observation can make later steps useless.
type WithHalts interface {
	// Halts says why steps that need this evidence must not start, "" when they may. The
	// verdict is still Judge's.
	Halts(key record.Key, data []byte) string
}

// Env is what a local step may use.
type Env interface {
	// View is the state of the run when the step started.
	View() View
	// Dial opens a connection to address as seen from the host.
	Dial(ctx context.Context, host, address string) (net.Conn, error)
	// Tunnel forwards a free loopback port to address on the host until ctx ends.
	// Lost is closed when the tunnel breaks.
	Tunnel(ctx context.Context, host, address string) (local string, lost <-chan struct{}, err error)
	// Host gives the connection for collectors; every operation passes the policy.
	Host(ctx context.Context, id string) (Host, error)
	// Secret resolves a reference of the fleet file.
	Secret(fleet.SecretRef) (fleet.Secret, error)
	// Sign signs a statement with the operator's key; nil when the run has none.
	Sign(attest.Statement) ([]byte, error)
	// RunDir is the folder of the record.
	RunDir() string
	// Progress tells a person how far the step is.
	Progress(text string)
}

// Host is one connected host. fleet/remote implements it.
type Host interface {
	Run(context.Context, remote.Command) (remote.Result, error)
	Put(context.Context, remote.File) (remote.Written, error)
	Get(ctx context.Context, path string, max int64) ([]byte, error)
	Dial(ctx context.Context, network, address string) (net.Conn, error)
	Tunnel(ctx context.Context, local, target string) (*remote.Tunnel, error)
	Close() error
}

// Connect opens a host by its id in the fleet.
type Connect func(ctx context.Context, id string) (Host, error)
