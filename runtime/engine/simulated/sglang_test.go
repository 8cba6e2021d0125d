package simulated

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/runtime/engine"
	"github.com/narwhal-fleet/narwhal/runtime/engine/sglang"
)

const chat, completions = "/v1/chat/completions", "/v1/completions"

func bootRole(t *testing.T, role string, change func(*Config)) (*Server, *engine.Client) {
	t.Helper()
	return boot(t, func(c *Config) {
		c.Dialect, c.Role, c.RoleSwitch, c.ShutdownTimeout = "sglang", role, true, fleet.Duration(10*time.Second)
		c.HandshakeLimit = fleet.Duration(200 * time.Millisecond)
		if change != nil {
			change(c)
		}
	})
}

// duo is a pair of engines.
type duo struct {
	p, d   *Server
	pc, dc *engine.Client
}

func bootDuo(t *testing.T, change func(*Config)) (x duo) {
	t.Helper()
	x.p, x.pc = bootRole(t, engine.RolePrefill, change)
	x.d, x.dc = bootRole(t, engine.RoleDecode, change)
	return x
}

// legs returns both bodies for one new room at p.
func (x duo) legs(t *testing.T, body string) (prefill, decode []byte) {
	t.Helper()
	p, d, err := engine.Pair(sglang.New(), []byte(body), false, engine.Rendezvous{Host: "127.0.0.1", Port: x.p.SidePort(), Room: engine.NewRoom()})
	if err != nil {
		t.Fatal(err)
	}
	return p, d
}

// heard is a leg's outcome.
type heard struct {
	status int
	text   string
	err    error
}

func (h heard) failed() bool {
	return h.err != nil || h.status != 200 || strings.Contains(h.text, `"error"`)
}

func (h heard) ids() (ids []int) {
	for part := range strings.SplitSeq(h.text, "\n\n") {
		var w struct {
			Choices []struct {
				IDs []int `json:"token_ids"`
			}
		}
		if json.Unmarshal([]byte(strings.TrimPrefix(part, "data: ")), &w) == nil && len(w.Choices) > 0 {
			ids = append(ids, w.Choices[0].IDs...)
		}
	}
	return ids
}

// say sends a leg and returns its outcome when it has one.
func say(ctx context.Context, c *engine.Client, body []byte) <-chan heard {
	out := make(chan heard, 1)
	go func() {
		resp, err := c.Do(ctx, completions, body, "")
		if err != nil {
			out <- heard{err: err}
			return
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		out <- heard{resp.StatusCode, string(b), err}
	}()
	return out
}

// run plays both legs to their ends.
func (x duo) run(t *testing.T, body string) (prefill, decode heard) {
	t.Helper()
	p, d := x.legs(t, body)
	ctx := limited(t)
	a, b := say(ctx, x.pc, p), say(ctx, x.dc, d)
	return <-a, <-b
}

// rest waits until both engines hold nothing.
func (x duo) rest(t *testing.T) {
	t.Helper()
	for _, s := range []*Server{x.p, x.d} {
		until(t, "rest", func() bool { return s.Account().Idle() })
	}
}

const prompt = `{` + long + `,"max_tokens":12}`

func TestPairOfRoles(t *testing.T) {
	x := bootDuo(t, nil)
	_, whole := bootRole(t, engine.RoleNone, nil)
	want := ask(t, whole, prompt)
	p, d := x.run(t, prompt)
	if p.failed() || d.failed() || !slices.Equal(d.ids(), want.TokenIDs) || len(want.TokenIDs) != 12 {
		t.Fatalf("%+v\n%+v\nwant %v", p, d, want.TokenIDs)
	}
	x.rest(t)
	for _, c := range []*engine.Client{x.pc, x.dc} { // a role needs a room
		var se *engine.StatusError
		if _, err := c.CompleteBody(limited(t), []byte(prompt), ""); !errors.As(err, &se) || se.Status != 400 || se.Param != "bootstrap_room" {
			t.Fatal(err)
		}
	}
}

// A leg's text comes from the KV that the other leg sent: another prompt's gives another text.
func TestTextFollowsTheKVSent(t *testing.T) {
	for _, checked := range []bool{false, true} {
		x := bootDuo(t, func(c *Config) { c.Checksum = checked })
		_, right := x.run(t, prompt)
		if err := x.d.Inject(Injection{Kind: "wrong-block"}); err != nil {
			t.Fatal(err)
		}
		p, wrong := x.run(t, prompt)
		switch {
		case checked && (!wrong.failed() || !p.failed()):
			t.Fatalf("a checksum that differs passed: %+v %+v", p, wrong)
		case !checked && (wrong.failed() || slices.Equal(wrong.ids(), right.ids())):
			t.Fatalf("wrong KV gave the right text: %+v", wrong)
		}
		x.rest(t)
	}
}

func TestLostLegsWaitForTheirLimit(t *testing.T) {
	x := bootDuo(t, func(c *Config) { c.RendezvousTimeout = fleet.Duration(600 * time.Millisecond) })
	p, d := x.legs(t, prompt)
	if got := <-say(limited(t), x.pc, p); got.status != 500 || !strings.HasPrefix(got.text, `{"object":"error"`) {
		t.Fatalf("%+v", got)
	}
	if got := <-say(limited(t), x.dc, d); got.status != 200 || !strings.HasPrefix(got.text, `data: {"error": {"object": "error"`) || !strings.HasSuffix(got.text, "data: [DONE]\n\n") {
		t.Fatalf("%+v", got)
	}
	x.rest(t)
	m, err := x.pc.Metrics(limited(t))
	if err != nil {
		t.Fatal(err)
	}
	if st, err := sglang.New().State(m); err != nil || st.Expired != 1 || st.FinishedOK != 0 {
		t.Fatalf("%+v %v", st, err)
	}
	if p, d := x.run(t, prompt); p.failed() || d.failed() {
		t.Fatal("the pair does not go on", p, d)
	}
}

// When one leg's client leaves, the other leg hears nothing until it is aborted too.
func TestAbortedLegLeavesTheOtherWaiting(t *testing.T) {
	for _, leaves := range []string{"prefill", "decode"} {
		t.Run(leaves, func(t *testing.T) {
			x := bootDuo(t, func(c *Config) { c.PrefillA = 0.2 })
			p, d := x.legs(t, prompt)
			first, leave := context.WithCancel(limited(t))
			second, end := context.WithCancel(limited(t))
			defer leave()
			defer end()
			a, b := first, second
			if leaves == "decode" {
				a, b = second, first
			}
			one, two := say(a, x.pc, p), say(b, x.dc, d)
			until(t, "the prefill", func() bool { return x.p.State().Load.Running == 1 })
			leave()
			gone, stays := one, two
			if leaves == "decode" {
				gone, stays = two, one
				<-gone
				until(t, "the pin", func() bool { return x.p.Account().Leases == 1 })
			} else {
				<-gone
				until(t, "the prefill's end", func() bool { return x.p.Account().Idle() })
			}
			select {
			case h := <-stays:
				t.Fatalf("the other leg was answered: %+v", h)
			default:
			}
			end()
			if h := <-stays; !errors.Is(h.err, context.Canceled) {
				t.Fatalf("%+v", h)
			}
			x.rest(t)
		})
	}
}

func TestHeartbeatFindsALostProcess(t *testing.T) {
	for _, kind := range []string{"kill", "freeze"} {
		t.Run(kind, func(t *testing.T) {
			x := bootDuo(t, func(c *Config) { c.HeartbeatInterval = fleet.Duration(40 * time.Millisecond) })
			if _, d := x.run(t, prompt); d.failed() {
				t.Fatal(d)
			}
			_, d := x.legs(t, prompt)
			got := say(limited(t), x.dc, d)
			until(t, "the wait", func() bool { return x.d.Account().Fetching == 1 })
			if err := x.p.Inject(Injection{Kind: kind}); err != nil {
				t.Fatal(err)
			}
			if h := <-got; !h.failed() || h.status != 200 {
				t.Fatalf("%+v", h)
			}
			until(t, "rest", func() bool { return x.d.Account().Idle() })
		})
	}
}

func TestRestartedProcessIsMetAnew(t *testing.T) {
	x := bootDuo(t, nil)
	if _, d := x.run(t, prompt); d.failed() {
		t.Fatal(d)
	}
	side := fmt.Sprintf("127.0.0.1:%d", x.p.SidePort())
	x.p.Stop()
	x.p, x.pc = bootRole(t, engine.RolePrefill, func(c *Config) { c.SideChannel = side })
	if p, d := x.run(t, prompt); p.failed() || d.failed() {
		t.Fatalf("%+v %+v", p, d)
	}
}

func TestAbortByID(t *testing.T) {
	x := bootDuo(t, func(c *Config) { c.DecodeD = 0.02 })
	first, _ := x.legs(t, `{`+long+`,"max_tokens":900}`)
	tag := func(b []byte, id string) []byte {
		out, err := sglang.New().(engine.Tagger).Tag(b, id)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	lone := say(limited(t), x.pc, tag(first, "one"))
	until(t, "the wait", func() bool { return x.p.Account().Rooms == 1 })
	if err := x.pc.PostJSON(limited(t), "/abort_request", map[string]any{"rid": "other"}, nil); err != nil {
		t.Fatal(err)
	}
	if err := x.pc.PostJSON(limited(t), "/abort_request", map[string]any{"rid": "one"}, nil); err != nil {
		t.Fatal(err)
	}
	if h := <-lone; h.status != 200 || !strings.Contains(h.text, `"finish_reason":"abort"`) || !strings.Contains(h.text, `"id":"one"`) {
		t.Fatalf("%+v", h)
	}
	x.rest(t)
	p, d := x.legs(t, `{`+long+`,"max_tokens":900}`)
	a, b := say(limited(t), x.pc, p), say(limited(t), x.dc, tag(d, "two"))
	<-a
	until(t, "the answer", func() bool { return x.d.State().Load.Running == 1 })
	if err := x.dc.PostJSON(limited(t), "/abort_request", map[string]any{"abort_all": true}, nil); err != nil {
		t.Fatal(err)
	}
	if h := <-b; !strings.Contains(h.text, `"finish_reason":"abort"`) || !strings.HasSuffix(h.text, "data: [DONE]\n\n") {
		t.Fatalf("%+v", h)
	}
	x.rest(t)
}

func TestRoomsKeepAllTheirBits(t *testing.T) {
	x := bootDuo(t, nil)
	const near = 1<<62 + 1
	body := func(room uint64) []byte {
		return fmt.Appendf(nil, `{%s,"max_tokens":2,"bootstrap_host":"127.0.0.1","bootstrap_port":%d,"bootstrap_room":%d}`, long, x.p.SidePort(), room)
	}
	ctx, cancel := context.WithCancel(limited(t))
	p := say(ctx, x.pc, body(near))
	d := say(ctx, x.dc, body(near+1)) // equal as a float
	until(t, "both waits", func() bool { return x.d.Account().Fetching == 1 && x.p.Account().Rooms == 2 })
	cancel()
	<-p
	<-d
	x.rest(t)
	for _, bad := range []string{`1.5`, `-1`, `"7"`, `[1,2]`, `9223372036854775808`} {
		var se *engine.StatusError
		b := fmt.Sprintf(`{%s,"bootstrap_room":%s}`, long, bad)
		if _, err := x.pc.CompleteBody(limited(t), []byte(b), ""); !errors.As(err, &se) || se.Status != 400 {
			t.Fatal(bad, err)
		}
	}
}

func TestBootstrapServer(t *testing.T) {
	x := bootDuo(t, nil)
	ask := func(s *Server, path string) (int, string) {
		resp, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d%s", s.SidePort(), path))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(b)
	}
	const all = "/route?prefill_dp_rank=-1&prefill_cp_rank=-1&target_tp_rank=-1&target_pp_rank=-1"
	if code, b := ask(x.p, all); code != 200 || !strings.Contains(b, `"page_size":16`) {
		t.Fatal(code, b)
	}
	for path, want := range map[string]int{"/health": 200, "/route": 400, strings.Replace(all, "-1", "3", 1): 404} {
		if code, b := ask(x.p, path); code != want {
			t.Fatal(path, code, b)
		}
	}
	if code, _ := ask(x.d, all); code != 503 {
		t.Fatal("a decoding process has a route:", code)
	}
}

func TestOtherPagesAreRefused(t *testing.T) {
	x := duo{}
	x.p, x.pc = bootRole(t, engine.RolePrefill, func(c *Config) { c.BlockSize = 32 })
	x.d, x.dc = bootRole(t, engine.RoleDecode, nil)
	ctx, cancel := context.WithCancel(limited(t))
	p, d := x.legs(t, prompt)
	a := say(ctx, x.pc, p)
	if h := <-say(ctx, x.dc, d); !h.failed() {
		t.Fatalf("%+v", h)
	}
	cancel()
	<-a
	x.rest(t)
}
