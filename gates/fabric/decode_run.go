package fabric

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/runtime/engine"
	"github.com/narwhal-fleet/narwhal/runtime/engine/sglang"
	"github.com/narwhal-fleet/narwhal/runtime/engine/vllm"
)

// EngineAt is an engine and where it answers.
type EngineAt struct {
	IID string `json:"iid"`
	URL string `json:"url"`
}

// DecodeRequest asks for a pair of hosts while their engines decode.
type DecodeRequest struct {
	A       string         `json:"a"`
	B       string         `json:"b"`
	Address string         `json:"address"` // of B's tester
	Streams int            `json:"streams"` // TCP streams of a direction
	Window  fleet.Duration `json:"window"`  // of one transfer
	Engines []EngineAt     `json:"engines"`
	// Others may begin requests of engines that answer in pairs of roles.
	Others  []EngineAt `json:"others,omitempty"`
	Dialect string     `json:"dialect"`
	Model   string     `json:"model"`
	Key     string     `json:"key,omitempty"` // variable of the engines' key
}

const (
	sglangName = "sglang"
	// decodeStart is how long all streams may take to bring their first token.
	decodeStart = 20 * time.Second
	roleWithin  = 5 * time.Second
)

func dialectOf(name string) (engine.Dialect, error) {
	switch name {
	case "vllm":
		return vllm.New(), nil
	case sglangName:
		return sglang.New(), nil
	}
	return nil, fmt.Errorf("no dialect %q", printable(name, 32))
}

// MeasureDecode fills the link between this host, A, and B, both ways at once: without any
// decoding, then with streams of decode at the engines of both, between windows in which these
// decode alone, and without again. An engine that does not decode is an answer, not an error.
func MeasureDecode(ctx context.Context, q DecodeRequest) (UnderDecode, error) {
	out := UnderDecode{A: q.A, B: q.B, Streams: q.Streams}
	fail := func(err error) (UnderDecode, error) {
		return out, fmt.Errorf("measure %s ↔ %s while engines decode: %w", q.A, q.B, err)
	}
	d, err := dialectOf(q.Dialect)
	if err != nil {
		return fail(err)
	}
	if q.Streams < 1 || q.Streams > maxStreams || q.Window.D() < leastPart || q.Window.D() > time.Minute || len(q.Engines) < 1 || len(q.Engines) > mostEngines {
		return fail(fmt.Errorf("want 1 to %d streams, a window of %s to 1m and 1 to %d engines", maxStreams, leastPart, mostEngines))
	}
	m, end, err := open(ctx, q.Address)
	if err != nil {
		if ctx.Err() != nil {
			return fail(ctx.Err())
		}
		out.Unreachable = printable(err.Error(), 300)
		return out, nil
	}
	defer m.close()
	defer context.AfterFunc(ctx, m.close)()
	out.Loopback = loopback(m.end, end)
	if err := m.ends(ctx, q, &out); err != nil {
		return fail(err)
	}
	loads, closing := q.loads(ctx, d)
	defer closing()
	windows, err := m.underDecode(ctx, q, loads, &out)
	if err != nil {
		return fail(err)
	}
	for _, l := range loads {
		out.Engines = append(out.Engines, l.told(windows))
	}
	if len(windows) == 0 {
		return out, nil
	}
	if err := m.ends(ctx, q, &out); err != nil {
		return fail(err)
	}
	return out, nil
}

// ends measures the link while nothing decodes.
func (m *measuring) ends(ctx context.Context, q DecodeRequest, out *UnderDecode) error {
	for range quietEnds {
		there, here, err := m.transfer(ctx, q.Streams, q.Streams, q.Window.D())
		if err != nil {
			return err
		}
		out.Forward.Quiet, out.Back.Quiet = append(out.Forward.Quiet, there.gbps()), append(out.Back.Quiet, here.gbps())
	}
	return nil
}

// window is a time in which the link was full, or idle.
type window struct {
	from, until time.Time
	full        bool
}

// underDecode alternates idle and full windows while the engines decode.
func (m *measuring) underDecode(ctx context.Context, q DecodeRequest, loads []*decoding, out *UnderDecode) ([]window, error) {
	loading, stop := context.WithCancel(ctx)
	var wg, ready sync.WaitGroup
	defer wg.Wait()
	defer stop()
	begun := make(chan struct{})
	for _, l := range loads {
		if l.ask == nil {
			continue
		}
		ready.Add(1)
		wg.Go(func() { l.run(loading, q.Model, ready.Done) })
	}
	wg.Go(func() { ready.Wait(); close(begun) })
	select {
	case <-begun:
	case <-time.After(decodeStart):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if !decodesAny(loads) {
		return nil, nil // the engines' part says why
	}
	var all []window
	for range busyWindows {
		from := time.Now()
		select {
		case <-time.After(q.Window.D()):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		all = append(all, window{from: from, until: time.Now()})
		from = time.Now()
		there, here, err := m.transfer(ctx, q.Streams, q.Streams, q.Window.D())
		if err != nil {
			return nil, err
		}
		all = append(all, window{from: from, until: time.Now(), full: true})
		out.Forward.Busy, out.Back.Busy = append(out.Forward.Busy, there.gbps()), append(out.Back.Busy, here.gbps())
	}
	return all, nil
}

// decodesAny reports whether there is a load to measure under.
func decodesAny(loads []*decoding) bool {
	for _, l := range loads {
		l.mu.Lock()
		going := l.failed == nil && l.out.Tokens > 0
		l.mu.Unlock()
		if going {
			return true
		}
	}
	return false
}

// told is an engine's part once its streams are over.
func (d *decoding) told(windows []window) Decoded {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := d.out
	if d.failed != nil {
		out.Failed = printable(d.failed.Error(), 300)
	}
	if d.ask == nil {
		return out
	}
	out.Streams = decodeStreams
	for _, w := range windows {
		each, longest := interval(d.stream, w.from, w.until)
		if w.full {
			out.Busy, out.BusyLongest = append(out.Busy, each), max(out.BusyLongest, longest)
		} else {
			out.Quiet, out.QuietLongest = append(out.Quiet, each), max(out.QuietLongest, longest)
		}
	}
	if out.Failed == "" && out.Tokens == 0 {
		out.Failed = fmt.Sprintf("no token came in %s", decodeStart)
	}
	return out
}
