package router

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/narwhal-fleet/narwhal/runtime/engine/simulated"
)

// until waits for a moment in an engine's account.
func (b *testbed) until(iid string, ok func(simulated.Account) bool) {
	eventually(b.t, "moment of "+iid, func() bool { return ok(b.engine(iid).Account()) })
}

// flowing waits until the relay has seen output of an engine.
func (b *testbed) flowing(iid string) {
	n := b.router.own.node(iid)
	before := n.made.Load()
	eventually(b.t, "output of "+iid, func() bool { return n.made.Load() > before })
}

func TestMatrix(t *testing.T) {
	t.Parallel()
	settles(t)
	type formed struct {
		matrixRow
		as string
	}
	var rows []formed
	for _, row := range matrix {
		for _, form := range []string{"stream", "buffer"} {
			if row.form == "" || row.form == form {
				rows = append(rows, formed{row, form})
			}
		}
	}
	together(t, rows, func(r formed) string { return r.name() + "/" + r.as }, func(t *testing.T, r formed) { r.run(t, r.as == "stream") })
}

func (m matrixRow) name() string { return m.event + "/" + m.how }

func (m matrixRow) ask(streamed bool) map[string]any {
	// The prompts of a matrix have one length in tokens.
	q := map[string]any{"prompt": prompt + "and sings", "max_tokens": 8, "ignore_eos": true, "temperature": 0, "stream": streamed}
	if m.long {
		q["max_tokens"] = 200
	}
	for k, v := range m.request {
		q[k] = v
	}
	return q
}

// run plays a row, again when the process stood still meanwhile.
func (m matrixRow) run(t *testing.T, streamed bool) {
	for try := 1; ; try++ {
		before := stalls.Load()
		errs := m.play(t, streamed)
		if stood := stalls.Load() > before; errors.Join(errs...) == nil || !stood || try == 4 {
			judge(t, m.name(), errs...)
			return
		}
		t.Logf("the machine stood still: %v", errors.Join(errs...))
	}
}

func (m matrixRow) play(t *testing.T, streamed bool) []error {
	mid := &between{}
	tweaks := []tweak{steered}
	if m.tune != nil {
		tweaks = append(tweaks, m.tune)
	}
	if m.legs != nil || m.tamper != nil {
		tweaks = append(tweaks, proxied(t, mid, "p0"))
	}
	b := startFleet(t, 2, 2, m.each, tweaks...)
	want := b.unsplit("p1", matrixRow{long: m.long}.ask(false))
	earlier := m.prepare(b, mid, streamed)
	for _, s := range m.inject {
		b.inject(s.at, s.Injection)
	}
	mid.when(m.betweenLegs(b, earlier))
	s := m.send(b, streamed)
	mid.when(nil)
	b.heard()
	for _, e := range b.engines {
		_ = e.Inject(simulated.Injection{Kind: "clear"})
		_ = e.Inject(simulated.Injection{Kind: "refuse", On: new(bool)})
	}
	return append(m.judge(b, s, want, streamed), m.row(b)...)
}

// prepare lets the pair meet, and the router look at counters, where the row wants that.
func (m matrixRow) prepare(b *testbed, mid *between, streamed bool) (earlier map[string]json.RawMessage) {
	if m.alarm != "" {
		eventually(b.t, "counters read", func() (ok bool) {
			b.router.own.do(func() {
				ok = !slices.ContainsFunc(b.router.own.nodes, func(n *node) bool { return n.counters == nil })
			})
			return ok
		})
	}
	if !m.warm {
		return nil
	}
	mid.when(func(a []byte) []byte { earlier = handoffOf(a); return a })
	q := matrixRow{}.ask(streamed)
	q["prompt"] = prompt + "and dives"
	if s := watch(long(b.t), b.client(), b.url, q, "warm", nil); s.short() != "200" {
		b.t.Fatalf("warming: %+v", s)
	}
	eventually(b.t, "the first handoff is settled", func() bool { return b.engine("p0").Account().Leases == 0 })
	return earlier
}

func (m matrixRow) betweenLegs(b *testbed, earlier map[string]json.RawMessage) func([]byte) []byte {
	var once sync.Once
	return func(a []byte) []byte {
		once.Do(func() {
			if m.legs != nil {
				m.legs(b)
			}
			if m.tamper != nil {
				h := handoffOf(a)
				m.tamper(earlier)(h)
				a = withHandoff(a, h)
			}
		})
		return a
	}
}

func (m matrixRow) send(b *testbed, streamed bool) sight {
	ctx, leave := context.WithCancel(long(b.t))
	defer leave()
	var beside sync.WaitGroup
	if m.during != nil {
		beside.Go(func() { m.during(b, leave) })
	}
	s := watch(ctx, b.client(), b.url, m.ask(streamed), "row", nil)
	beside.Wait()
	return s
}

// judge compares what the client saw, and what engines and breakers show afterwards.
func (m matrixRow) judge(b *testbed, s sight, want string, streamed bool) (errs []error) {
	bad := func(format string, a ...any) { errs = append(errs, fmt.Errorf(format, a...)) }
	if m.sees != "" {
		if s.short() != m.sees || s.header.Get("Retry-After") != m.retryAfter {
			bad("the client sees %q, retry-after %q; want %q, %q", s.short(), s.header.Get("Retry-After"), m.sees, m.retryAfter)
		}
		if err := s.right(want, streamed); err != nil && !m.blind {
			bad("%w", err)
		}
	}
	if m.alarm != "" {
		iid, kind, _ := strings.Cut(m.alarm, " ")
		eventually(b.t, "alarm "+m.alarm, func() (ok bool) {
			b.router.own.do(func() { ok = b.router.own.n.alarms[[2]string{iid, kind}] > 0 })
			return ok
		})
	}
	if m.pinned != "" {
		e := b.engine(m.pinned)
		if e.Account().PinnedBlocks == 0 {
			bad("%s pins nothing", m.pinned)
		}
		if !m.unseen {
			judge(b.t, pinsCount, b.counts(m.pinned))
		}
		_ = e.Inject(simulated.Injection{Kind: "expire"})
	}
	if err := b.idle(); err != nil {
		errs = append(errs, err)
	}
	// A probe that has passed meanwhile has taken its strike back.
	if got := b.strikes(); got != m.strikes && (m.may == "" || got != "") {
		bad("breakers count %q, want %q", got, m.strikes)
	}
	return errs
}
