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
	Address string         `json:"address"` // of the tester that starts the servers
	Runs    []ToolRun      `json:"runs"`
	Repeats int            `json:"repeats"` // of each run
	For     fleet.Duration `json:"for"`     // length of one run
	// Optional makes a tool that is not installed an answer and no error.
	Optional bool   `json:"optional,omitempty"`
	History  []Past `json:"history,omitempty"`
}

// ToolRun is one way of running the tool.
type ToolRun struct {
	Server string   `json:"server"`          // name of its server's command at the tester
	Bytes  int64    `json:"bytes,omitempty"` // of one message, 0 = the tool has none
	Both   bool     `json:"both,omitempty"`
	Argv   []string `json:"argv"` // of the client
}

// fits tells of a request that can be run.
func (q ToolRequest) fits() bool {
	if _, known := tools[q.Tool]; !known || len(q.Runs) < 1 || len(q.Runs) > maxRuns || q.Repeats < 1 || q.Repeats > toolRepeats || q.For <= 0 || q.For.D() > maxPhase {
		return false
	}
	for _, r := range q.Runs {
		if len(r.Argv) == 0 || r.Argv[0] != q.Tool {
			return false
		}
	}
	return true
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

// MeasureTool lets the tester start the tool's server and runs the client, for each run and
// repeat anew.
func MeasureTool(ctx context.Context, q ToolRequest) (ToolSample, error) {
	s := ToolSample{Tool: q.Tool, From: q.From, To: q.To}
	if !q.fits() {
		return s, fmt.Errorf("measure %s → %s: %q is no tool of this version, or its runs are none", q.From, q.To, printable(q.Tool, 32))
	}
	if _, err := exec.LookPath(q.Tool); err != nil && q.Optional {
		s.Absent = q.From
		return s, nil
	}
	m, end, err := open(ctx, q.Address)
	if err != nil {
		return s, fmt.Errorf("measure %s → %s: %w", q.From, q.To, err)
	}
	defer m.close() // ends the server
	for _, run := range q.Runs {
		absent, err := s.take(ctx, m, q, run)
		switch {
		case err != nil:
			return s, fmt.Errorf("measure %s → %s: %w", q.From, q.To, err)
		case absent && q.Optional:
			s.Absent = q.To
			return s, nil
		case absent:
			return s, fmt.Errorf("measure %s → %s: start %s: it is not installed on %s", q.From, q.To, q.Tool, q.To)
		}
	}
	s.NotMeasured = tools[q.Tool].lacks
	s.Fingerprint = digest(s.Tool, s.Version, s.From, s.To, q.Runs, q.Repeats, m.end.way(), end.way())
	for _, h := range q.History {
		if h.Fingerprint == s.Fingerprint {
			s.History = append(s.History, h)
		}
	}
	return s, nil
}

// take makes all repeats of one run. absent tells that the other end has no such program.
func (s *ToolSample) take(ctx context.Context, m *measuring, q ToolRequest, run ToolRun) (absent bool, err error) {
	rates := ToolRates{Bytes: run.Bytes, Both: run.Both, Argv: run.Argv}
	for range q.Repeats {
		r, absent, err := m.runTool(ctx, q, run)
		if err != nil || absent {
			return absent, err
		}
		rates.Repeat = append(rates.Repeat, r.gbps)
		s.Retransmits, s.Version = s.Retransmits+r.retransmits, r.version
	}
	s.keep(rates)
	return false, nil
}

// keep adds a run; the one of mainBytes, or of no size, is the edge's rate.
func (s *ToolSample) keep(r ToolRates) {
	mid, spread := centre(r.Repeat)
	r.Gbps = mid
	if !r.Both && (r.Bytes == mainBytes || r.Bytes == 0) {
		s.Gbps, s.Spread, s.Argv = mid, spread, r.Argv
	}
	if r.Bytes > 0 {
		s.Runs = append(s.Runs, r)
	}
}

// runTool is one repeat, with a server of its own.
func (m *measuring) runTool(ctx context.Context, q ToolRequest, run ToolRun) (r reading, absent bool, err error) {
	_ = m.c.SetDeadline(time.Now().Add(maxPhase)) // of each repeat
	answer, err := m.ask(control{Op: "tool", Tool: run.Server})
	if err != nil || answer.Absent {
		return reading{}, answer.Absent, err
	}
	limited, cancel := context.WithTimeout(ctx, q.For.D()+toolGrace)
	defer cancel()
	r, err = untilServed(limited, tools[q.Tool], run.Argv)
	return r, false, err
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
// another tool, ends it. absent tells that the program is not installed here.
func (s *session) tool(name string) (absent bool, err error) {
	argv := s.tester.tools[name]
	if len(argv) == 0 {
		return false, fmt.Errorf("this tester starts no %q", printable(name, 64))
	}
	if s.stop != nil {
		s.stop()
		s.stop = nil
	}
	ctx, cancel := context.WithCancel(s.ctx)
	c := command(ctx, argv)
	if err := c.Start(); err != nil {
		cancel()
		if errors.Is(err, exec.ErrNotFound) {
			return true, nil
		}
		return false, fmt.Errorf("start %s: %w", name, err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = c.Wait()
	}()
	s.stop = func() { cancel(); <-ended }
	return false, nil
}
