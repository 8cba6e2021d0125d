package fabric

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/narwhal-fleet/narwhal/gates/record"
)

// noisy is a repeat of a link of a given rate. Repeats of one edge vary by 5 %, edges among
// each other by 3 %; one repeat in ten meets something else and loses up to half.
type noisy struct{ r *rand.Rand }

func (n noisy) direction(rate float64) Direction {
	d := direction(rate)
	edge := rate * math.Exp(0.03*n.r.NormFloat64())
	repeat := func() float64 {
		v := edge * math.Exp(0.05*n.r.NormFloat64())
		if n.r.Float64() < 0.1 {
			v *= 1 - 0.5*n.r.Float64()
		}
		return v
	}
	d.Together, d.Alone = nil, nil
	for range togetherRepeats {
		d.Together = append(d.Together, repeat())
	}
	for range aloneRepeats {
		d.Alone = append(d.Alone, repeat()*1.02)
	}
	d.Gbps, d.Spread = centre(d.Together)
	d.AloneGbps = median(d.Alone)
	d.Segments = 1e6
	d.Retransmits = int64(2000 * n.r.Float64())
	d.Datagrams, d.Arrived = 2*trainLength, 2*trainLength
	if n.r.Float64() < 0.02 { // one datagram meets a full queue
		d.Arrived--
	}
	return d
}

// fabric is the evidence of hosts whose edges have these rates.
func (n noisy) fabric(t *testing.T, hosts int, rate func(Edge) float64, edit func(Edge, *Direction)) []record.Finding {
	f := testFleet(hosts)
	f.Deploy.Fabric.MinGbps = 2
	e := good(t, f)
	for _, p := range pairs(names(hosts)) {
		s := goodPair(p)
		for _, edge := range p.Edges() {
			d := n.direction(rate(edge))
			if edit != nil {
				edit(edge, &d)
			}
			if edge.From == p.A {
				s.Forward = d
			} else {
				s.Back = d
			}
		}
		e[pairKey(p)] = s
	}
	for _, h := range names(hosts) {
		incast(e, h, func(i *Incast) {
			i.Repeat = nil
			for range incastRepeats {
				i.Repeat = append(i.Repeat, 9*math.Exp(0.05*n.r.NormFloat64()))
			}
			i.Gbps, i.Spread = centre(i.Repeat)
			for s := range i.Shares {
				i.Shares[s] = i.Gbps / float64(hosts-1) * math.Exp(0.3*n.r.NormFloat64())
			}
		})
	}
	return Gate{}.Judge(view(t, f, e))
}

const (
	runs  = 50
	eight = 8
)

func even(Edge) float64 { return 9.4 }

// TestHealthyFabricIsQuiet: fifty runs over eight equal hosts with noise find nothing.
func TestHealthyFabricIsQuiet(t *testing.T) {
	for seed := range uint64(runs) {
		n := noisy{rand.New(rand.NewPCG(seed, 1))}
		if got := n.fabric(t, eight, even, nil); len(got) != 0 {
			t.Errorf("run %d: found %s", seed, got[0].Message)
		}
	}
}

// TestSlowLinkIsFound: fifty runs each with one link that is 30 % slower, of a directed
// edge, of a pair, and of a host. It is found every time, named, and nothing else is.
func TestSlowLinkIsFound(t *testing.T) {
	for what, slowed := range map[string]func(Edge) bool{
		"edge h2 → h5": func(e Edge) bool { return e == Edge{"h2", "h5"} },
		"edge h5 → h2": func(e Edge) bool { return e == Edge{"h2", "h5"} || e == Edge{"h5", "h2"} },
		"host h3":      func(e Edge) bool { return e.From == "h3" || e.To == "h3" },
		"host h4":      func(e Edge) bool { return e.From == "h4" },
	} {
		for seed := range uint64(runs) {
			n := noisy{rand.New(rand.NewPCG(seed, 2))}
			got := n.fabric(t, eight, func(e Edge) float64 {
				if slowed(e) {
					return 0.7 * even(e)
				}
				return even(e)
			}, nil)
			if !named(got, "edge-outlier", what) {
				t.Errorf("run %d, %s: found %v", seed, what, messages(got))
			}
			for _, f := range got {
				if at := strings.TrimPrefix(strings.TrimPrefix(what, "edge "), "host "); f.Code != "edge-outlier" || !strings.Contains(at+"h2h5", f.Host) {
					t.Errorf("run %d, %s: also found %s: %s", seed, what, f.Code, f.Message)
				}
			}
		}
	}
}

// TestLossyLinkIsFound: one link loses one packet in a hundred.
func TestLossyLinkIsFound(t *testing.T) {
	for seed := range uint64(runs) {
		n := noisy{rand.New(rand.NewPCG(seed, 3))}
		got := n.fabric(t, eight, even, func(e Edge, d *Direction) {
			if e.From != "h6" {
				return
			}
			for range d.Datagrams {
				if n.r.Float64() < 0.01 {
					d.Arrived--
				}
			}
			d.Arrived = max(0, d.Arrived)
		})
		if len(got) != 1 || !named(got, "edge-lossy", "host h6") {
			t.Errorf("run %d: found %v", seed, messages(got))
		}
	}
}

// TestSmallLinkIsFound: one host's link takes 1500 bytes, by its interface or by a port of
// the switch that tells nobody.
func TestSmallLinkIsFound(t *testing.T) {
	n := noisy{rand.New(rand.NewPCG(1, 4))}
	got := n.fabric(t, eight, even, func(e Edge, d *Direction) {
		if e.From == "h7" || e.To == "h7" {
			d.PathMTU = 1500
		}
	})
	if len(got) != 2 || !named(got, "path-mtu", "host h7") {
		t.Errorf("found %v", messages(got))
	}
}

func named(got []record.Finding, code, what string) bool {
	for _, f := range got {
		if f.Code == code && strings.HasPrefix(f.Message, what) {
			return true
		}
	}
	return false
}

func messages(got []record.Finding) []string {
	var out []string
	for _, f := range got {
		out = append(out, fmt.Sprintf("%s %s", f.Code, f.Message))
	}
	return out
}
