package engines

import (
	"context"
	"fmt"
	"time"

	"github.com/narwhal-fleet/narwhal/gates/engines/cause"
	"github.com/narwhal-fleet/narwhal/internal/process"
	"github.com/narwhal-fleet/narwhal/runtime/engine"
	"github.com/narwhal-fleet/narwhal/runtime/engine/sglang"
)

// answer is what one round of questions brought.
type answer struct {
	live   Live
	reason string
}

// askOn asks until the engine generates or ctx ends.
func askOn(ctx context.Context, c *engine.Client, q LiveRequest, blank Live, to chan<- answer) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		a := answer{live: blank}
		a.reason = ask(ctx, c, q, &a.live)
		select {
		case to <- a:
		case <-ctx.Done():
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// watch is one wait for an engine.
type watch struct {
	q      LiveRequest
	rec    process.Record
	known  bool
	log    logTail
	oom    uint64
	begin  time.Time
	last   string    // why the engine was not ready when it last answered
	doomed time.Time // when the log told that it will not be
}

// until returns once out is decided; the error is of ctx.
func (w *watch) until(ctx context.Context, answers <-chan answer, out *Live) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		if !w.known || !w.rec.Alive() {
			out.Reason = "the process has ended"
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case a := <-answers:
			w.last = a.reason
			keep := *out
			*out = a.live
			out.PID, out.BootID, out.Ticks, out.Launch = keep.PID, keep.BootID, keep.Ticks, keep.Launch
			if a.reason == "" {
				if out.Ready = w.rec.Alive(); !out.Ready {
					out.Reason = "another process answers on its address"
				}
				return nil
			}
			if len(out.Models) > 0 && !serves(out.Models, w.q.Model) {
				out.Reason = a.reason
				return nil // waiting does not change what it serves
			}
		case <-tick.C:
		}
		if out.Reason = w.hopeless(); out.Reason != "" {
			return nil
		}
	}
}

// hopeless says why there is nothing to wait for, "" while there is.
func (w *watch) hopeless() string {
	w.log.read()
	if f := w.log.reader.Found(); f != nil && f.Sure {
		if w.doomed.IsZero() {
			w.doomed = time.Now()
		}
		if time.Since(w.doomed) > settle {
			return "its log tells why it will not be, though the process still runs"
		}
	}
	if time.Since(w.begin) > w.q.Within.D() {
		return fmt.Sprintf("not ready within %s: %s", w.q.Within, orNothing(w.last))
	}
	return ""
}

func orNothing(reason string) string {
	if reason == "" {
		return "it has not answered"
	}
	return reason
}

// why reads the rest of the log and asks what else the machine knows.
func (w *watch) why(ctx context.Context) *cause.Found {
	w.log.read()
	_ = w.log.reader.Close()
	f := w.log.reader.Found()
	if f != nil && f.Sure {
		return f
	}
	if now := oomKills(); w.known && !w.rec.Alive() && now > w.oom {
		return cause.OutOfHostMemory(fmt.Sprintf("/proc/vmstat: oom_kill rose from %d to %d while the engine started", w.oom, now))
	}
	if line := w.q.Unit.ended(ctx); line != "" {
		return cause.OutOfHostMemory(line)
	}
	return f
}

// ask fills in what the engine says; it returns why the engine is not ready, "" when it is.
// An SGLang engine of one role answers no request without its peer: its own health check,
// which runs a token, is what counts.
func ask(ctx context.Context, c *engine.Client, q LiveRequest, out *Live) string {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	if err := c.Health(ctx); err != nil {
		return err.Error()
	}
	if q.Joins {
		return ""
	}
	p := proberOf(q.Dialect)
	id, err := p.Identity(ctx, c)
	if err != nil {
		return err.Error()
	}
	out.Version, out.ProcessStart = id.Version, id.ProcessStart
	if out.Models, err = c.Models(ctx); err != nil {
		return err.Error()
	}
	if !serves(out.Models, q.Model) {
		return fmt.Sprintf("it serves %s, not %s", names(out.Models), q.Model)
	}
	if q.Dialect == sglang.Name {
		if err := p.Ready(ctx, c); err != nil {
			return err.Error()
		}
		return ""
	}
	done, err := c.Complete(ctx, engine.CompletionRequest{Model: q.Model, Prompt: probePrompt, MaxTokens: probeTokens, IgnoreEOS: true})
	if err != nil {
		return err.Error()
	}
	if len(done.TokenIDs) == 0 && done.Text == "" {
		return "it generated nothing"
	}
	out.ProbeText, out.ProbeTokens = engine.Printable(done.Text, 256), done.TokenIDs
	return ""
}
