package simulated

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/runtime/engine"
)

// What an injection does to two legs in a room. In the end both engines hold nothing, whatever
// went wrong between them.
func TestInjectionsInARoom(t *testing.T) {
	cases := []struct {
		name    string
		in      Injection
		at      string // the side where it is played: p or d
		p, d    bool   // which legs fail
		differs bool   // the text is another one
	}{
		{name: "kv never sent", in: Injection{Kind: "drop-handoff"}, at: "p", p: true, d: true},
		{name: "offer without pages", in: Injection{Kind: "corrupt-handoff", Field: "blocks"}, at: "p", p: true, d: true},
		{name: "transfer fails", in: Injection{Kind: "read-failure"}, at: "d", p: true, d: true},
		{name: "other pages", in: Injection{Kind: "wrong-block"}, at: "d", differs: true},
		{name: "notice lost", in: Injection{Kind: "notice-lost"}, at: "d", p: true},
		{name: "no route", in: Injection{Kind: "side-dead"}, at: "p", p: true, d: true},
		{name: "prefill refused", in: Injection{Kind: "leg1-status", Status: 500}, at: "p", p: true, d: true},
		{name: "decode refused", in: Injection{Kind: "leg2-status", Status: 500}, at: "d", p: true, d: true},
		{name: "prefill busy", in: Injection{Kind: "busy"}, at: "p", p: true, d: true},
		{name: "prefill garbage", in: Injection{Kind: "garbage"}, at: "p", d: true},
		{name: "decode error", in: Injection{Kind: "error", After: 2}, at: "d", d: true},
		{name: "meant for the other leg", in: Injection{Kind: "leg2-status", Status: 500}, at: "p"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			x := bootDuo(t, func(c *Config) { c.RendezvousTimeout = fleet.Duration(600 * time.Millisecond) })
			_, whole := bootRole(t, engine.RoleNone, nil)
			want := ask(t, whole, prompt)
			s := map[string]*Server{"p": x.p, "d": x.d}[c.at]
			if err := s.Inject(c.in); err != nil {
				t.Fatal(err)
			}
			p, d := x.run(t, prompt)
			if p.failed() != c.p || d.failed() != c.d {
				t.Fatalf("prefill %+v\ndecode %+v", p, d)
			}
			if !c.d && slices.Equal(d.ids(), want.TokenIDs) == c.differs {
				t.Fatalf("got %v, unsplit %v", d.ids(), want.TokenIDs)
			}
			x.rest(t)
			if err := s.Inject(Injection{Kind: "clear"}); err != nil {
				t.Fatal(err)
			}
			if p, d := x.run(t, prompt); p.failed() || d.failed() || !slices.Equal(d.ids(), want.TokenIDs) {
				t.Fatalf("the pair does not go on: %+v %+v", p, d)
			}
			x.rest(t)
		})
	}
}

// A frozen process keeps no time: its legs end after it goes on.
func TestFrozenLegsKeepNoTime(t *testing.T) {
	x := bootDuo(t, func(c *Config) { c.RendezvousTimeout = fleet.Duration(300 * time.Millisecond) })
	p, d := x.legs(t, prompt)
	for _, k := range []struct {
		s    *Server
		c    *engine.Client
		body []byte
		held func(Account) bool
	}{
		{x.p, x.pc, p, func(a Account) bool { return a.Rooms == 1 }},
		{x.d, x.dc, d, func(a Account) bool { return a.Fetching == 1 }},
	} {
		got := say(limited(t), k.c, k.body)
		until(t, "the wait", func() bool { return k.held(k.s.Account()) })
		if err := k.s.Inject(Injection{Kind: "freeze"}); err != nil {
			t.Fatal(err)
		}
		select {
		case h := <-got:
			t.Fatalf("a frozen process answered: %+v", h)
		case <-time.After(500 * time.Millisecond):
		}
		if err := k.s.Inject(Injection{Kind: "freeze", On: off}); err != nil {
			t.Fatal(err)
		}
		if h := <-got; !h.failed() {
			t.Fatalf("%+v", h)
		}
	}
	x.rest(t)
}

// Pages that are overwritten before they leave hold something else, which a checksum finds.
func TestRecycledPagesDiffer(t *testing.T) {
	x := bootDuo(t, nil)
	p, _ := x.legs(t, prompt)
	var w struct {
		Room uint64 `json:"bootstrap_room"`
	}
	if err := json.Unmarshal(p, &w); err != nil {
		t.Fatal(err)
	}
	m := &meeting{Host: "127.0.0.1", Port: x.p.SidePort(), Room: w.Room}
	prefill := say(limited(t), x.pc, p)
	peer, err := x.d.contact(limited(t), m)
	if err != nil {
		t.Fatal(err)
	}
	o, err := x.d.claimRoom(limited(t), peer, m.Room)
	if err != nil {
		t.Fatal(err)
	}
	read := func() [][]int32 {
		contents, err := x.d.peers.blocks(limited(t), peer.at, o.Blocks, peer.PageSize)
		if err != nil {
			t.Fatal(err)
		}
		return contents
	}
	if checksum(read()) != o.Sum {
		t.Fatal("right pages have another checksum")
	}
	if err := x.p.Inject(Injection{Kind: "recycle"}); err != nil {
		t.Fatal(err)
	}
	if checksum(read()) == o.Sum {
		t.Fatal("recycled pages have the right checksum")
	}
	x.d.report(m, false)
	if h := <-prefill; h.failed() {
		t.Fatal(h)
	}
	x.rest(t)
}
