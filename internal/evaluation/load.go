package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"

	"github.com/narwhal-fleet/narwhal/runtime/bench"
	"github.com/narwhal-fleet/narwhal/runtime/simulate"
)

// names are the workloads of testdata in the order of the page.
var names = []string{"even-below", "even-at", "even-above", "burst", "chatdoc-100", "azure-x4"}

// load reads a workload of testdata with its engine model and promise.
func (e *evaluation) load(name string) (simulate.Config, error) {
	folder := filepath.Join(e.root, "runtime", "simulate", "testdata", "workloads")
	b, err := os.ReadFile(filepath.Join(folder, "index.json"))
	if err != nil {
		return simulate.Config{}, fmt.Errorf("read workloads: %w", err)
	}
	var index struct {
		Model     simulate.Model
		Workloads map[string]struct {
			File, Score string
			SLO         struct {
				TTFT float64 `json:"ttft_s"`
				TPOT float64 `json:"tpot_s"`
			}
		}
	}
	if err := json.Unmarshal(b, &index); err != nil {
		return simulate.Config{}, fmt.Errorf("read workloads: %w", err)
	}
	w, ok := index.Workloads[name]
	if !ok {
		return simulate.Config{}, fmt.Errorf("read workloads: %s is not in index.json", name)
	}
	t, err := bench.Open(filepath.Join(folder, w.File), "")
	if err != nil {
		return simulate.Config{}, err
	}
	c := simulate.Defaults(w.SLO.TTFT, w.SLO.TPOT)
	c.Workload, c.Model, c.Score, c.Arrivals, c.Seed = name, index.Model, w.Score, arrivals(t, 1), 1
	return c, nil
}

func arrivals(t bench.Trace, faster float64) []simulate.Arrival {
	out := make([]simulate.Arrival, len(t.Arrivals))
	for i, a := range t.Arrivals {
		out[i] = simulate.Arrival{At: a.At.Seconds() / faster, Input: a.Input, Output: a.Output, Class: a.Class}
	}
	return out
}

// small is a fleet of four engines of a small model.
func small() (simulate.Model, float64, float64) {
	return simulate.Model{Engines: 4, PrefillAtStart: 2, Prefill: simulate.Prefill{B: 2e-5, C: 0.002},
		Decode: simulate.Decode{C: 0.002, R: 1e-4, M: 1e-7}, MaxRunning: 64, KVTokens: 65536, Transfer: simulate.Transfer{Base: 0.0005}}, 0.5, 0.012
}

// work is how many engine seconds arrivals ask for, both phases at full batches of their mean
// context within the promise.
func work(m simulate.Model, tpot float64, as []simulate.Arrival) float64 {
	prefill, out, context := 0.0, 0.0, 0.0
	for _, a := range as {
		n, k := float64(a.Input), float64(max(1, a.Output))
		prefill += m.Prefill.A*n*n + m.Prefill.B*n + m.Prefill.C
		out += k
		context += k * (n + k/2)
	}
	context /= out
	full := 1
	step := func(r int) float64 { return m.Decode.C + float64(r)*(m.Decode.R+m.Decode.M*context) }
	for full < m.MaxRunning && step(full+1) <= tpot && float64(full+1)*context <= float64(m.KVTokens) {
		full++
	}
	return prefill + out*step(full)/float64(full)
}

// repeated plays a trace over and over at a share of a fleet's capacity, for at least span
// seconds.
func repeated(t bench.Trace, m simulate.Model, tpot, share, span float64) []simulate.Arrival {
	as := arrivals(t, 1)
	long := as[len(as)-1].At + as[len(as)-1].At/float64(len(as))
	faster := share * float64(m.Engines) * long / work(m, tpot, as)
	var out []simulate.Arrival
	for n := 0; float64(n)*long/faster < span; n++ {
		for _, a := range as {
			a.At = (a.At + float64(n)*long) / faster
			out = append(out, a)
		}
	}
	return out
}

// shares of a second are drawn as whole microseconds, so that every machine draws the same.
func jitter(r *rand.Rand, seconds float64) float64 { return float64(r.IntN(int(seconds*1e6)+1)) / 1e6 }

// flow appends arrivals of one class at a mean rate from one second to another.
func flow(out []simulate.Arrival, r *rand.Rand, from, to, rate float64, input, output int, class string) []simulate.Arrival {
	for at := from + jitter(r, 2/rate); at < to; at += jitter(r, 2/rate) {
		out = append(out, simulate.Arrival{At: at, Input: input/2 + r.IntN(input), Output: output/2 + r.IntN(output), Class: class})
	}
	return out
}
