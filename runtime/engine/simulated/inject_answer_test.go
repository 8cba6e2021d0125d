package simulated

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/narwhal-fleet/narwhal/runtime/engine"
	"github.com/narwhal-fleet/narwhal/runtime/engine/vllm"
)

// ofAnswer has a test for every kind that one answer, handoff or read spends.
var ofAnswer = map[string]func(bench){
	"busy": func(b bench) {
		b.play(b.d, Injection{Kind: "busy", Count: 2})
		for range 2 {
			if se := b.refused(b.dc, short, 503); !se.Busy() {
				b.Fatal(se)
			}
		}
		ask(b.T, b.dc, short)
	},
	"status": func(b bench) {
		for status, typ := range map[int]string{400: engine.TypeBadRequest, 403: engine.TypePermission, 404: engine.TypeNotFound, 429: engine.TypeBadRequest, 503: engine.TypeUnavailable, 500: engine.TypeInternal, 504: engine.TypeInternal} {
			b.play(b.d, Injection{Kind: "status", Status: status})
			if se := b.refused(b.dc, short, status); se.Type != typ {
				b.Fatal(se)
			}
		}
		b.play(b.d, Injection{Kind: "status", Status: 202})
		if got := <-say(limited(b.T), b.dc, []byte(short)); got.status != 202 {
			b.Fatal(got)
		}
		if err := b.d.Inject(Injection{Kind: "status", Status: 99}); err == nil {
			b.Fatal("99 passed as a status")
		}
		ask(b.T, b.dc, short)
	},
	"leg1-status": func(b bench) {
		b.play(b.p, Injection{Kind: "leg1-status", Status: 500, Count: -1})
		ask(b.T, b.pc, short) // no leg
		leg, _ := engine.Prefill(vllm.New(), []byte(prompt))
		for range 3 {
			b.refused(b.pc, string(leg), 500)
		}
		b.play(b.p, Injection{Kind: "clear"})
		b.play(b.p, Injection{Kind: "leg2-status", Status: 500})
		if _, err := b.split(); err != nil {
			b.Fatal("a leg 1 spent what is meant for leg 2:", err)
		}
	},
	"leg2-status": func(b bench) {
		b.play(b.d, Injection{Kind: "leg2-status", Status: 429})
		var se *engine.StatusError
		if _, err := b.split(); !errors.As(err, &se) || se.Status != 429 {
			b.Fatal(err)
		}
		until(b.T, "the release", func() bool { return b.p.Account().Leases == 0 }) // a 4xx tells the producer
		b.play(b.d, Injection{Kind: "leg2-status", Status: 502})
		if _, err := b.split(); !errors.As(err, &se) || se.Status != 502 || b.p.Account().Leases != 1 {
			b.Fatal(err, b.p.Account())
		}
		b.play(b.p, Injection{Kind: "expire"})
	},
	"garbage": func(b bench) {
		for _, body := range []string{short, stream} {
			b.play(b.d, Injection{Kind: "garbage"})
			got := <-say(limited(b.T), b.dc, []byte(body))
			if got.status != 200 || strings.Contains(got.text, "data:") || utf8.ValidString(got.text) {
				b.Fatalf("%+v", got)
			}
		}
		b.play(b.p, Injection{Kind: "garbage"})
		if _, _, err := vllm.New().ParseHandoff([]byte((<-say(limited(b.T), b.pc, []byte(short))).text), time.Now()); err == nil || errors.Is(err, engine.ErrNoHandoff) {
			b.Fatal(err)
		}
	},
	"drop-handoff": func(b bench) {
		b.play(b.p, Injection{Kind: "drop-handoff"})
		leg, _ := engine.Prefill(vllm.New(), []byte(prompt))
		if _, _, err := vllm.New().ParseHandoff(ask(b.T, b.pc, string(leg)).Raw, time.Now()); !errors.Is(err, engine.ErrNoHandoff) {
			b.Fatal(err)
		}
		if b.p.Account().Leases != 1 {
			b.Fatal("a dropped handoff pins nothing")
		}
		b.play(b.p, Injection{Kind: "expire"})
	},
	"corrupt-handoff": func(b bench) {
		b.play(b.p, Injection{Kind: "corrupt-handoff", Field: "remote_num_tokens", Value: []byte("7")})
		if h := leg1(b.T, b.pc, prompt); h.Tokens != 7 {
			b.Fatal(h)
		}
		if err := b.p.Inject(Injection{Kind: "corrupt-handoff"}); err == nil {
			b.Fatal("no field is no refusal")
		}
		b.play(b.p, Injection{Kind: "expire"})
	},
	"read-failure": func(b bench) {
		b.play(b.d, Injection{Kind: "read-failure"})
		var se *engine.StatusError
		if _, err := b.split(); !errors.As(err, &se) || se.Status != 500 || b.p.Account().Leases != 1 {
			b.Fatal(err, b.p.Account())
		}
		b.play(b.p, Injection{Kind: "expire"})
	},
	"wrong-block": func(b bench) {
		want := ask(b.T, b.pc, prompt)
		b.play(b.d, Injection{Kind: "wrong-block"})
		if got, err := b.split(); err != nil || slices.Equal(got.TokenIDs, want.TokenIDs) {
			b.Fatal("wrong blocks gave the right text", err)
		}
	},
	"switch-failure": func(b bench) {
		s, c := bootRole(b.T, engine.RoleDecode, nil)
		b.play(s, Injection{Kind: "switch-failure"})
		if got := switched(b.T, c, engine.RolePrefill, false); got.Success || got.SafeToRestore || !s.Account().Idle() {
			b.Fatal(got, s.Account())
		}
	},
	"notice-lost": func(b bench) {
		b.play(b.d, Injection{Kind: "notice-lost"})
		if _, err := b.split(); err != nil {
			b.Fatal(err)
		}
		if a := b.p.Account(); a.Leases != 1 || a.PinnedBlocks == 0 {
			b.Fatalf("%+v", a)
		}
		b.play(b.p, Injection{Kind: "expire"})
	},
	"error": func(b bench) {
		b.play(b.d, Injection{Kind: "error", After: 3, Count: 2})
		if got := events(b.T, b.dc, completions, stream); len(got) != 5 || !strings.Contains(got[3], `"error"`) || got[4] != "[DONE]" {
			b.Fatal(got)
		}
		b.refused(b.dc, short, 500)
	},
	"stall": func(b bench) {
		b.play(b.d, Injection{Kind: "stall", After: 3})
		ctx, cancel := context.WithCancel(limited(b.T))
		resp, err := b.dc.Do(ctx, completions, []byte(stream), "")
		if err != nil {
			b.Fatal(err)
		}
		defer resp.Body.Close()
		seen := 0
		for buf := make([]byte, 4096); seen < 3; {
			n, err := resp.Body.Read(buf)
			if err != nil {
				b.Fatal(err)
			}
			seen += strings.Count(string(buf[:n]), "data: ")
		}
		until(b.T, "the core's end", func() bool { return b.d.Account().Running == 0 })
		if b.d.Account().Calls != 1 {
			b.Fatal("the stream ended")
		}
		cancel()
	},
	"eof": func(b bench) {
		b.play(b.d, Injection{Kind: "eof", After: 2})
		if got := events(b.T, b.dc, completions, stream); len(got) != 2 || strings.Contains(got[1], "DONE") {
			b.Fatal(got)
		}
	},
	"reset": func(b bench) {
		b.play(b.d, Injection{Kind: "reset", After: 2})
		if got := events(b.T, b.dc, completions, stream); !strings.HasPrefix(got[len(got)-1], "broken") {
			b.Fatal(got)
		}
	},
	"clear": func(b bench) {
		for _, in := range []Injection{{Kind: "busy", Count: -1}, {Kind: "trickle"}, {Kind: "slow", Factor: 1000}, {Kind: "hang"}, {Kind: "status", Status: 500, Count: -1}} {
			b.play(b.d, in)
		}
		b.play(b.d, Injection{Kind: "clear"})
		ask(b.T, b.dc, short)
	},
}
