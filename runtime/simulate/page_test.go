package simulate

import (
	"bytes"
	"encoding/xml"
	"io"
	"strings"
	"testing"
)

func pageOf(t *testing.T) ([]byte, Result) {
	t.Helper()
	c := shift()
	c.Arrivals, c.Compare, c.Timeline, c.Workload = c.Arrivals[:1500], false, true, `<script>alert("w")</script>`
	for i := range c.Arrivals {
		if i%3 == 0 {
			c.Arrivals[i].Class = []string{`"><img src=x onerror=alert(1)>`, "\x1b]0;\u202e\xff"}[i%2]
		}
	}
	c.Policies, c.Topologies = []string{"default", "queue-depth"}, []string{Aggregated, ColdSwap, HotSwap}
	r := must(t, c)
	b, err := Page(r, c.Params.TTFT)
	if err != nil {
		t.Fatal(err)
	}
	return b, r
}

func TestPageHoldsEveryArmAndEscapes(t *testing.T) {
	b, r := pageOf(t)
	page := string(b)
	for _, bad := range []string{"\x1b", "\u202e", "<script", "<img", "onerror=alert(1)>", "http-equiv=\"refresh", "src=", "href="} {
		if bad != "src=" && strings.Contains(page, bad) || bad == "src=" && strings.Contains(strings.ReplaceAll(page, "src=x", ""), bad) {
			t.Errorf("the page holds %q", bad)
		}
	}
	if n := strings.Count(page, "<svg "); n != 1+3*len(r.Arms) || len(r.Arms) != 4 {
		t.Errorf("%d pictures of %d arms", n, len(r.Arms))
	}
	for _, a := range r.Arms {
		if !strings.Contains(page, "<h2>"+a.Policy+" · "+a.Topology+"</h2>") {
			t.Errorf("%s in %s is not on the page", a.Policy, a.Topology)
		}
	}
	if strings.Count(page, "bound "+"100.00 %") < len(r.Arms) {
		t.Error("the bound is not beside every arm")
	}
	if again, _ := pageOf(t); !bytes.Equal(b, again) {
		t.Error("a second run gives other bytes")
	}
}

func TestPicturesAreWellFormed(t *testing.T) {
	_, r := pageOf(t)
	all := [][]byte{Bars(r)}
	for _, a := range r.Arms {
		all = append(all, Lines(a, 2)...)
	}
	for i, p := range all {
		d := xml.NewDecoder(bytes.NewReader(p))
		for {
			if _, err := d.Token(); err == io.EOF {
				break
			} else if err != nil {
				t.Fatalf("picture %d: %v\n%s", i, err, p)
			}
		}
		if bytes.Contains(p, []byte("NaN")) || bytes.Contains(p, []byte("Inf")) {
			t.Errorf("picture %d holds no number:\n%s", i, p)
		}
	}
	if _, err := Page(Result{Arms: []Arm{{}}}, 1); err == nil {
		t.Error("a page without timelines")
	}
}

// The timeline by hand: one request a second to one prefill engine; a queue of none, and each
// first token after 0.115 s.
func TestTimeline(t *testing.T) {
	m := Model{Engines: 2, PrefillAtStart: 1, Prefill: Prefill{B: 0.001}, Decode: Decode{C: 0.01}, MaxRunning: 8, KVTokens: 10000, Transfer: Transfer{Base: 0.005}}
	c := config(m, 1, 0.05, even(0, 240, 1, 100, 3, "a")...)
	c.Timeline = true
	l := must(t, c).Arms[0].Timeline
	n := 0
	for i := range points {
		n += l.First[0][i].N
		if l.Prefill[i] != 1 || l.Decode[i] != 1 {
			t.Fatalf("point %d: %dP%dD", i, l.Prefill[i], l.Decode[i])
		}
		if d := l.First[0][i]; d.N > 0 && (d.Most < 0.1149 || d.Most > 0.1151) {
			t.Fatalf("point %d: %+v", i, d)
		}
	}
	if n != 240 {
		t.Errorf("%d first tokens", n)
	}
}
