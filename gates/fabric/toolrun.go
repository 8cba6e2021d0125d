package fabric

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
)

// ToolRequest asks for one directed edge as another tool measures it.
type ToolRequest struct {
	Tool    string         `json:"tool"`
	From    string         `json:"from"`
	To      string         `json:"to"`
	Address string         `json:"address"` // of the tester that starts the server
	Argv    []string       `json:"argv"`    // of the client
	For     fleet.Duration `json:"for"`
}

const (
	maxToolOutput = 4 << 20
	toolGrace     = 30 * time.Second
	// toolStart is how long a client that ends at once is started again: its server may not
	// listen yet.
	toolStart  = 5 * time.Second
	toolPause  = 100 * time.Millisecond
	toolAtOnce = time.Second
)

// MeasureTool lets the tester start the tool's server and runs the client.
func MeasureTool(ctx context.Context, q ToolRequest) (ToolSample, error) {
	s := ToolSample{Tool: q.Tool, From: q.From, To: q.To, Argv: q.Argv}
	t, known := tools[q.Tool]
	if !known || len(q.Argv) == 0 || q.Argv[0] != q.Tool || q.For <= 0 || q.For.D() > maxPhase {
		return s, fmt.Errorf("measure %s → %s: %q is no tool of this version", q.From, q.To, printable(q.Tool, 32))
	}
	m, _, err := open(ctx, q.Address)
	if err != nil {
		return s, fmt.Errorf("measure %s → %s: %w", q.From, q.To, err)
	}
	defer m.close() // ends the server
	if _, err := m.ask(control{Op: "tool", Tool: q.Tool}); err != nil {
		return s, fmt.Errorf("measure %s → %s: %w", q.From, q.To, err)
	}
	limited, cancel := context.WithTimeout(ctx, q.For.D()+toolGrace)
	defer cancel()
	r, err := untilServed(limited, t, q.Argv)
	if err != nil {
		return s, fmt.Errorf("measure %s → %s: %w", q.From, q.To, err)
	}
	s.Gbps, s.Retransmits, s.Version = r.gbps, r.retransmits, r.version
	return s, nil
}

// untilServed runs a client, again while it ends at once without a reading: iperf3 exits 0
// after a refused connection.
func untilServed(ctx context.Context, t tool, argv []string) (reading, error) {
	for start := time.Now(); ; {
		began := time.Now()
		var r reading
		out, err := client(ctx, argv)
		if err == nil {
			r, err = t.parse(out)
		}
		if err == nil || errors.Is(err, exec.ErrNotFound) || time.Since(began) > toolAtOnce || time.Since(start) > toolStart {
			return r, err
		}
		select {
		case <-ctx.Done():
			return reading{}, err
		case <-time.After(toolPause):
		}
	}
}

func client(ctx context.Context, argv []string) ([]byte, error) {
	var out, errs bounded
	c := command(ctx, argv)
	c.Stdout, c.Stderr = &out, &errs
	err := c.Run()
	switch {
	case out.over || errs.over:
		return nil, fmt.Errorf("run %s: it prints more than %d bytes", argv[0], maxToolOutput)
	case err != nil:
		said := append(errs.kept, out.kept...)
		return nil, fmt.Errorf("run %s: %w: %s", argv[0], err, printable(string(said[:min(len(said), 1000)]), 300))
	}
	return out.kept, nil
}

// command speaks plain English and ends with its context.
func command(ctx context.Context, argv []string) *exec.Cmd {
	c := exec.CommandContext(ctx, argv[0], argv[1:]...)
	c.Env = append(os.Environ(), "LC_ALL=C", "NO_COLOR=1", "TERM=dumb")
	c.WaitDelay = time.Second
	return c
}

// bounded keeps output up to a limit.
type bounded struct {
	kept []byte
	over bool
}

func (b *bounded) Write(p []byte) (int, error) {
	if len(b.kept)+len(p) > maxToolOutput {
		b.over = true
		return 0, io.ErrShortWrite
	}
	b.kept = append(b.kept, p...)
	return len(p), nil
}

// tool starts the server that the tester's command line names; the session's end, or
// another tool, ends it.
func (s *session) tool(name string) error {
	argv := s.tester.tools[name]
	if len(argv) == 0 {
		return fmt.Errorf("this tester starts no %q", printable(name, 32))
	}
	if s.stop != nil {
		s.stop()
	}
	ctx, cancel := context.WithCancel(s.ctx)
	c := command(ctx, argv)
	if err := c.Start(); err != nil {
		cancel()
		return fmt.Errorf("start %s: %w", name, err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = c.Wait()
	}()
	s.stop = func() { cancel(); <-ended }
	return nil
}
