package simulated

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/narwhal-fleet/narwhal/runtime/engine"
	"github.com/narwhal-fleet/narwhal/runtime/engine/simulated/core"
)

// bench is a pair of the vLLM dialect under injection.
type bench struct {
	*testing.T
	p, d   *Server
	pc, dc *engine.Client
}

func newBench(t *testing.T, change func(*Config)) bench {
	p, pc := boot(t, change)
	d, dc := boot(t, change)
	return bench{t, p, d, pc, dc}
}

func (b bench) play(s *Server, in Injection) {
	b.Helper()
	if err := s.Inject(in); err != nil {
		b.Fatal(err)
	}
}

// rest is the account's proof: nothing is pinned, leased, running or waiting in the end.
func (b bench) rest() {
	b.Helper()
	for name, s := range map[string]*Server{"producer": b.p, "decoder": b.d} {
		for end := time.Now().Add(10 * time.Second); !s.Account().Idle(); time.Sleep(2 * time.Millisecond) {
			if time.Now().After(end) {
				b.Fatalf("%s holds %+v", name, s.Account())
			}
		}
	}
}

// split runs both legs; the error is the second's.
func (b bench) split() (engine.Completion, error) {
	b.Helper()
	return leg2(b.T, b.dc, prompt, leg1(b.T, b.pc, prompt))
}

// refused wants a status of one request on a client.
func (b bench) refused(c *engine.Client, body string, status int) *engine.StatusError {
	b.Helper()
	var se *engine.StatusError
	if _, err := c.CompleteBody(limited(b.T), []byte(body), ""); !errors.As(err, &se) || se.Status != status {
		b.Fatalf("want %d, got %v", status, err)
	}
	return se
}

const (
	short  = `{"prompt":"x","max_tokens":10,"temperature":0}`
	stream = `{"prompt":"x","max_tokens":10,"temperature":0,"stream":true}`
)

var off = new(bool)

// ofEngine has a test for every kind that changes the whole engine: what it does, and that
// nothing stays behind.
var ofEngine = map[string]func(bench){
	"freeze": func(b bench) {
		b.play(b.d, Injection{Kind: "freeze"})
		h := say(limited(b.T), b.dc, []byte(short))
		ctx, cancel := context.WithTimeout(limited(b.T), 50*time.Millisecond)
		defer cancel()
		if err := b.dc.Health(ctx); !errors.Is(err, context.DeadlineExceeded) {
			b.Fatal("a frozen engine answers:", err)
		}
		b.play(b.d, Injection{Kind: "freeze", On: off})
		if got := <-h; got.failed() {
			b.Fatal(got)
		}
	},
	"hang": func(b bench) {
		b.play(b.d, Injection{Kind: "hang"})
		c, err := net.Dial("tcp", b.d.Addr())
		if err != nil {
			b.Fatal("connections are refused:", err)
		}
		c.Close()
		ctx, cancel := context.WithTimeout(limited(b.T), 50*time.Millisecond)
		defer cancel()
		if err := b.dc.Health(ctx); !errors.Is(err, context.DeadlineExceeded) {
			b.Fatal("a hanging engine answers:", err)
		}
		b.play(b.d, Injection{Kind: "hang", On: off})
		ask(b.T, b.dc, short)
	},
	"pause": func(b bench) {
		b.play(b.d, Injection{Kind: "pause"})
		h := say(limited(b.T), b.dc, []byte(short))
		until(b.T, "the hold", func() bool { return b.d.Account().Held == 1 })
		if g := b.d.State().Load; g.Running+g.Capacity != 0 || b.dc.Health(limited(b.T)) != nil {
			b.Fatal("a pause shows")
		}
		b.play(b.d, Injection{Kind: "pause", On: off})
		if got := <-h; got.failed() {
			b.Fatal(got)
		}
	},
	"refuse": func(b bench) {
		b.play(b.d, Injection{Kind: "refuse"})
		b.dc.Close()
		if _, err := net.Dial("tcp", b.d.Addr()); err == nil {
			b.Fatal("the port is open")
		}
		b.play(b.d, Injection{Kind: "refuse", On: off})
		b.play(b.d, Injection{Kind: "refuse", ForS: 0.02})
		until(b.T, "the port's return", func() bool { return b.dc.Health(limited(b.T)) == nil })
	},
	"side-dead": func(b bench) {
		h := leg1(b.T, b.pc, prompt)
		b.play(b.p, Injection{Kind: "side-dead"})
		if _, err := leg2(b.T, b.dc, prompt, h); err == nil {
			b.Fatal("a new peer was met")
		}
		b.play(b.p, Injection{Kind: "side-dead", On: off})
		if _, err := leg2(b.T, b.dc, prompt, h); err != nil {
			b.Fatal(err)
		}
		b.play(b.p, Injection{Kind: "side-dead"})
		if _, err := leg2(b.T, b.dc, strings.Replace(prompt, "quick", "slow", 1), leg1(b.T, b.pc, strings.Replace(prompt, "quick", "slow", 1))); err != nil {
			b.Fatal("a known peer stopped:", err)
		}
	},
	"split": func(b bench) {
		whole := reads(b, stream)
		b.play(b.d, Injection{Kind: "split"})
		cut := reads(b, stream)
		if len(cut) != 22 || len(whole) > 11 { // ten tokens and the end
			b.Fatalf("%d reads, %d uncut", len(cut), len(whole))
		}
	},
	"split-utf8": func(b bench) {
		b.play(b.d, Injection{Kind: "utf8"})
		b.play(b.d, Injection{Kind: "split-utf8"})
		body := strings.Replace(stream, `:10`, `:60`, 1)
		parts := reads(b, body)
		if !slices.ContainsFunc(parts, func(s string) bool { return !utf8.ValidString(s) }) || !utf8.ValidString(strings.Join(parts, "")) {
			b.Fatal("no read ends inside a character")
		}
	},
	"trickle": func(b bench) {
		want := ask(b.T, b.dc, short)
		b.play(b.d, Injection{Kind: "trickle"})
		parts := reads(b, stream)
		if all := strings.Join(parts, ""); len(parts) != len(all) || !strings.HasSuffix(all, "data: [DONE]\n\n") {
			b.Fatal(len(parts), all)
		}
		if got := ask(b.T, b.dc, short); got.Text != want.Text {
			b.Fatal(got.Text)
		}
	},
	"utf8": func(b bench) {
		b.play(b.d, Injection{Kind: "utf8"})
		if got := ask(b.T, b.dc, strings.Replace(short, `:10`, `:60`, 1)); len(got.Text) == utf8.RuneCountInString(got.Text) {
			b.Fatalf("%q", got.Text)
		}
	},
	"join": func(b bench) {
		b.play(b.d, Injection{Kind: "join", Count: 4})
		if got := events(b.T, b.dc, completions, stream); len(got) != 4 {
			b.Fatal(len(got), got)
		}
	},
	"slow": func(b bench) {
		b.play(b.d, Injection{Kind: "slow", Factor: 20})
		began := time.Now()
		ask(b.T, b.dc, short)
		if took := time.Since(began); took < 150*time.Millisecond {
			b.Fatal(took)
		}
		if err := b.d.Inject(Injection{Kind: "slow"}); err == nil {
			b.Fatal("a factor of 0 passed")
		}
	},
	"kill": func(b bench) {
		h := say(limited(b.T), b.dc, []byte(strings.Replace(stream, `:10`, `:1900`, 1)))
		until(b.T, "running", func() bool { return b.d.Account().Running == 1 })
		b.play(b.d, Injection{Kind: "kill"})
		<-b.d.Done()
		if got := <-h; got.err == nil || strings.Contains(got.text, "DONE") || !errors.Is(b.d.Err(), ErrKilled) {
			b.Fatal(got, b.d.Err())
		}
	},
	"terminate": func(b bench) {
		h := say(limited(b.T), b.dc, []byte(strings.Replace(stream, `:10`, `:60`, 1)))
		until(b.T, "running", func() bool { return b.d.Account().Running == 1 })
		b.play(b.d, Injection{Kind: "terminate", ForS: 10})
		b.refused(b.dc, short, 500)
		if got := <-h; !strings.HasSuffix(got.text, "data: [DONE]\n\n") {
			b.Fatal(got)
		}
		<-b.d.Done()
		silent := say(limited(b.T), b.pc, []byte(strings.Replace(stream, `:10`, `:1900`, 1)))
		until(b.T, "running", func() bool { return b.p.Account().Running == 1 })
		b.play(b.p, Injection{Kind: "terminate"})
		if _, err := net.Dial("tcp", b.p.Addr()); err == nil {
			b.Fatal("the port is open")
		}
		select {
		case got := <-silent:
			b.Fatalf("an open stream ended: %+v", got)
		case <-b.p.Done():
			b.Fatal("the process left its client")
		default:
		}
		b.p.Stop()
		<-silent
	},
	"core-death": func(b bench) {
		h := say(limited(b.T), b.dc, []byte(strings.Replace(stream, `:10`, `:1900`, 1)))
		until(b.T, "running", func() bool { return b.d.Account().Running == 1 })
		b.play(b.d, Injection{Kind: "core-death"})
		if got := <-h; !got.failed() || !strings.HasSuffix(got.text, "data: [DONE]\n\n") {
			b.Fatal(got)
		}
		<-b.d.Done()
		if !errors.Is(b.d.Err(), ErrCoreDied) {
			b.Fatal(b.d.Err())
		}
	},
	"expire": func(b bench) {
		leg1(b.T, b.pc, prompt)
		if a := b.p.Account(); a.Leases != 1 || a.PinnedBlocks == 0 || a.UsedBlocks != a.PinnedBlocks {
			b.Fatalf("%+v", a)
		}
		b.play(b.p, Injection{Kind: "expire"})
		m, err := b.pc.Metrics(limited(b.T))
		if n, _ := m.Sum("vllm:nixl_num_kv_expired_reqs_total"); err != nil || n != 1 {
			b.Fatal("the end of a lease is not counted", n, err)
		}
	},
	"recycle": func(b bench) {
		want := ask(b.T, b.pc, prompt)
		h := leg1(b.T, b.pc, prompt)
		b.play(b.p, Injection{Kind: "recycle"})
		if got, err := leg2(b.T, b.dc, prompt, h); err != nil || slices.Equal(got.TokenIDs, want.TokenIDs) {
			b.Fatal("recycled blocks gave the right text", err)
		}
	},
	"clock": func(b bench) {
		before, err := b.dc.Identity(limited(b.T))
		if err != nil {
			b.Fatal(err)
		}
		b.play(b.d, Injection{Kind: "clock", Factor: -3600})
		after, err := b.dc.Identity(limited(b.T))
		if err != nil || before.ProcessStart-after.ProcessStart < 3599 {
			b.Fatal(before, after, err)
		}
		b.play(b.d, Injection{Kind: "clear"})
		if cleared, err := b.dc.Identity(limited(b.T)); err != nil || cleared.ProcessStart != before.ProcessStart {
			b.Fatal("clear left the clock", cleared, err)
		}
		if err := b.d.Inject(Injection{Kind: "clock", Factor: 1e300}); err == nil {
			b.Fatal("a clock of another age was taken")
		}
	},
}

// reads are the pieces in which an answer leaves the engine: the chunks of its connection.
func reads(b bench, body string) (parts []string) {
	b.Helper()
	conn, err := net.Dial("tcp", b.d.Addr())
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", completions, len(body), body)
	raw, err := io.ReadAll(conn)
	if err != nil {
		b.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(raw), "\r\n\r\n")
	for {
		head, after, ok := strings.Cut(rest, "\r\n")
		n, err := strconv.ParseInt(head, 16, 32)
		if !ok || err != nil || len(after) < int(n)+2 {
			b.Fatalf("no chunk: %q", rest)
		}
		if n == 0 {
			return parts
		}
		parts, rest = append(parts, after[:n]), after[n+2:]
	}
}

func TestInjections(t *testing.T) {
	injections := maps.Clone(ofEngine)
	maps.Copy(injections, ofAnswer)
	for _, kind := range Kinds() {
		t.Run(kind, func(t *testing.T) {
			play, ok := injections[kind]
			if !ok {
				t.Fatal("no test shows this injection")
			}
			b := newBench(t, func(c *Config) { c.HandshakeLimit = 200e6 })
			play(b)
			b.rest()
		})
	}
	if len(injections) != len(Kinds()) {
		t.Fatal("a kind is tested that nobody can inject")
	}
}

func TestUnknownInjectionIsRefused(t *testing.T) {
	s, c := boot(t, nil)
	if err := s.Inject(Injection{Kind: "nonsense"}); err == nil {
		t.Fatal("nonsense was injected")
	}
	var se *engine.StatusError
	if err := c.PostJSON(limited(t), "/simulated/inject", Injection{Kind: "status", Status: 7}, nil); !errors.As(err, &se) || se.Status != 400 {
		t.Fatal(err)
	}
	resp, err := http.Get(s.URL() + "/simulated/account")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if b, err := io.ReadAll(resp.Body); err != nil || !strings.Contains(string(b), `"leases":0`) {
		t.Fatal(string(b), err)
	}
}

func TestPieces(t *testing.T) {
	const text = "data: aé🐋b\n\ndata: [DONE]\n\n"
	for sh, want := range map[shape]int{{}: 1, {split: true}: 4, {trickle: true}: len(text), {splitRune: true}: 6} {
		var parts []string
		for p := range sh.pieces([]byte(text)) {
			parts = append(parts, string(p))
		}
		if strings.Join(parts, "") != text || len(parts) != want {
			t.Errorf("%+v: %q", sh, parts)
		}
	}
}

// A lease's account over its life, in virtual time.
func TestAccountFollowsALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := New(testConfig())
		if err != nil {
			t.Fatal(err)
		}
		held := func(want core.Account) {
			t.Helper()
			if got := s.Account().Account; got != want {
				t.Fatalf("%+v, want %+v", got, want)
			}
		}
		submit := func(id string) {
			s.with(func(now time.Time) {
				err = s.core.Submit(now, &core.Seq{ID: id, Prompt: make([]int32, 40), MaxTokens: 1, Export: true, Sink: &ears{}})
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		submit("a")
		held(core.Account{Running: 1, UsedBlocks: 3})
		time.Sleep(time.Second)
		synctest.Wait()
		held(core.Account{Leases: 1, PinnedBlocks: 3, UsedBlocks: 3})
		submit("b") // shares the two full blocks
		time.Sleep(time.Second)
		synctest.Wait()
		held(core.Account{Leases: 2, PinnedBlocks: 4, UsedBlocks: 4})
		time.Sleep(31 * time.Second)
		synctest.Wait()
		if !s.Account().Idle() {
			t.Fatal(fmt.Sprint(s.Account()))
		}
	})
}
