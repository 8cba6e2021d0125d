package router

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/narwhal-fleet/narwhal/runtime/prefix"
)

// What a leg of an earlier process did is lost with it.
func TestLateNewsOfAnEarlierProcess(t *testing.T) {
	r := offline(t, 1, 1)
	r.own.do(func() {
		n := r.own.nodes[0]
		head := &promptHead{r.hasher.Chain([]byte(words("x", 4000))), 4000}
		l := &claim{p: n, d: r.own.nodes[1], input: 1000, prompt: head, lifeP: n.cacheLife, told: -1}
		n.forget()
		r.own.holds(n, l)
		r.own.shown(l, 900)
		if n.prefixes.Len() != 0 {
			t.Error("the new process holds what the old one had")
		}
		l.lifeP = n.cacheLife
		if r.own.shown(l, -1); n.prefixes.Match(head.chain) != len(head.chain) {
			t.Error("a prefill that told nothing leaves nothing")
		}
	})
}

func TestShown(t *testing.T) {
	for name, c := range map[string]struct {
		believed, had int
		held          int // chunks of 10 that are believed afterwards
		shrinks       bool
	}{
		"as believed":          {believed: 768, had: 768, held: 10},
		"more":                 {believed: 256, had: 900, held: 10},
		"a chunk less":         {believed: 768, had: 640, held: 10},
		"half":                 {believed: 900, had: 450, held: 3, shrinks: true},
		"nothing":              {believed: 900, had: 0, held: 0, shrinks: true},
		"nothing was believed": {believed: 0, had: 0, held: 10},
		"a lie":                {believed: 900, had: 1 << 40, held: 10},
	} {
		r := offline(t, 1, 1)
		r.own.do(func() {
			n := r.own.nodes[0]
			head := &promptHead{r.hasher.Chain([]byte(words("x", 10*prefix.Chunk))[:10*prefix.Chunk]), 10 * prefix.Chunk}
			head.bytes = 10*prefix.Chunk + 100
			n.prefixes.Add(head.chain)
			before := n.prefixes.Limit()
			l := &claim{p: n, d: n, input: 1300, prompt: head, cached: c.believed, given: c.believed}
			r.own.shown(l, c.had)
			if got := n.prefixes.Match(head.chain); got != c.held || (n.prefixes.Limit() < before) != c.shrinks || n.believed != c.believed || n.confirmed > c.believed {
				t.Errorf("%s: %d chunks, limit %d of %d, believed %d, confirmed %d", name, got, n.prefixes.Limit(), before, n.believed, n.confirmed)
			}
		})
	}
}

func TestTokensOfChunks(t *testing.T) {
	p := &promptHead{bytes: 4096}
	for _, c := range []struct{ chunks, input, block, want int }{{8, 1000, 16, 992}, {8, 1024, 16, 1008}, {4, 1000, 16, 496}, {4, 1000, 0, 500}, {0, 1000, 16, 0}, {8, 1, 16, 0}, {1, 100, 16, 0}} {
		if got := p.tokens(c.chunks, c.input, c.block); got != c.want || got >= c.input {
			t.Errorf("%+v: %d", c, got)
		}
	}
}

// A prefill of a tail is compared with the tail's prediction.
func TestPrefillCorrectionOfATail(t *testing.T) {
	r := offline(t, 1, 1)
	r.own.do(func() {
		o, n := r.own, r.own.nodes[0]
		head := &promptHead{bytes: 1}
		for i := range 1000 {
			l := &claim{p: n, d: n, input: 4000, prompt: head, cached: 3000, told: []int{-1, 3000}[i%2], own: n.curve.Warm(4000, 3000), at: float64(i)}
			o.learnPrefill(l, l.at+1.25*l.own)
			n.lastPrefill = l.at + 1.25*l.own
		}
		if n.prefillKappa < 1.24 || n.prefillKappa > 1.26 {
			t.Errorf("correction %v", n.prefillKappa)
		}
	})
}

func TestPrefixLimit(t *testing.T) {
	if got := []int{prefixLimit(0, 4), prefixLimit(128_000, 4), prefixLimit(1<<40, 4)}; !slices.Equal(got, []int{unknownChunks, 1000, prefix.MaxLimit}) {
		t.Error(got)
	}
}

func TestCachedInAnAnswer(t *testing.T) {
	event := `data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":%s}}}` + "\n\ndata: [DONE]\n\n"
	for body, want := range map[string]int{"": -1, "data: [DONE]\n\n": -1, "no json": -1, fmt.Sprintf(event, "0"): 0, fmt.Sprintf(event, "7"): 7, fmt.Sprintf(event, "null"): -1, fmt.Sprintf(event, `"x"`): -1} {
		if got := cachedIn([]byte(body)); got != want {
			t.Errorf("%q: %d, want %d", body, got, want)
		}
	}
}

func TestSharedHeads(t *testing.T) {
	h := prefix.NewHasher()
	long := words("x", 3000)
	head := func(chat bool, body string) *promptHead {
		c, f := parseCall(chat, []byte(body))
		if f != nil {
			t.Fatalf("%s: %s", body, f.message)
		}
		return c.shared(h, modelName)
	}
	agree := func(a, b *promptHead) int {
		n := 0
		for n < min(len(a.chain), len(b.chain)) && a.chain[n] == b.chain[n] {
			n++
		}
		return n
	}
	chat := func(more, rest string) string {
		return fmt.Sprintf(`{"messages":[{"role":"user","content":%q}%s]%s}`, long, more, rest)
	}
	one := head(true, chat("", ""))
	for name, c := range map[string]struct {
		body string
		same bool
	}{
		"grows":          {chat(`,{"role":"user","content":"more"}`, ``), true},
		"samples":        {chat("", `,"temperature":0.3,"max_tokens":7,"stream":true,"user":"u"`), true},
		"names a model":  {chat("", `,"model":"`+modelName+`"`), true},
		"salted":         {chat("", `,"cache_salt":"s"`), false},
		"has tools":      {chat("", `,"tools":[{"type":"function"}]`), false},
		"other template": {chat("", `,"chat_template":"t"`), false},
	} {
		two := head(true, c.body)
		if n := agree(one, two); n != map[bool]int{true: len(one.chain)}[c.same] {
			t.Errorf("%s: %d of %d chunks", name, n, len(one.chain))
		}
	}
	if text := head(false, fmt.Sprintf(`{"prompt":%q}`, long)); agree(one, text) != 0 {
		t.Error("a completion shares a chat's head")
	}
	list := strings.Repeat("17,", 999) + "4"
	if ids := head(false, `{"prompt":[`+list+`]}`); len(ids.chain) != (len(list))/prefix.Chunk {
		t.Errorf("%d chunks of ids", len(ids.chain))
	} else if alone := head(false, `{"prompt":[[`+list+`]]}`); agree(ids, alone) != len(ids.chain) {
		t.Error("a list of one prompt has another head than the prompt")
	}
	for name, body := range map[string]string{"short": `{"prompt":"short"}`, "several": fmt.Sprintf(`{"prompt":[%q,%q]}`, long, long), "lists": `{"prompt":[[` + list + `],[1]]}`,
		"cut": fmt.Sprintf(`{"prompt":%q,"truncate_prompt_tokens":5}`, long), "scored": fmt.Sprintf(`{"prompt":%q,"prompt_logprobs":1}`, long), "none": `{}`, "empty": `{"prompt":[]}`} {
		if p := head(false, body); p != nil {
			t.Errorf("%s: %d chunks", name, len(p.chain))
		}
	}
	if p := head(true, `{"messages":[{"role":"user","content":[{"type":"text","text":"`+long+`"},{"type":"image_url","image_url":{"url":"u"}}]}]}`); p != nil {
		t.Error("an image has no bytes to count by")
	}
}
