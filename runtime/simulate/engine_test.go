package simulate

import (
	"encoding/json"
	"math"
	"os"
	"testing"

	"github.com/narwhal-fleet/narwhal/runtime/model"
)

// reference is the engine of the vectors and of the fixture workloads.
func reference() Model {
	return Model{Engines: 8, PrefillAtStart: 2, Prefill: Prefill{6e-9, 5.5e-5, 0.003}, Decode: Decode{0.012, 1.2e-4, 2.5e-7},
		MaxRunning: 128, KVTokens: 400000, Transfer: Transfer{0.004, 1e-6}}
}

type vector struct {
	At     float64   `json:"at_s"`
	Kind   string    `json:"kind"`
	Input  int       `json:"input"`
	Output int       `json:"output"`
	Times  []float64 `json:"times_s"`
}

// tokenTimes plays vectors on one engine and returns the time of each token.
func tokenTimes(m Model, vs []vector) [][]float64 {
	var snap model.EngineView
	e := &engine{model: &m, slow: 1, next: math.Inf(1), ledger: ledger{v: &snap}}
	index := map[*job]int{}
	out := make([][]float64, len(vs))
	for n := 0; n < len(vs) || !math.IsInf(e.next, 1); {
		if n < len(vs) && vs[n].At < e.next {
			v := vs[n]
			j := &job{input: v.Input, output: v.Output, seq: n}
			index[j] = n
			if v.Kind == "prefill" {
				e.addPrefill(j)
			} else {
				e.addDecode(j, v.At)
			}
			e.stir(v.At)
			n++
			continue
		}
		now := e.next
		if e.busy == running {
			for _, j := range e.batch {
				for k := 1; k <= e.count; k++ {
					out[index[j]] = append(out[index[j]], e.run.end(k))
				}
			}
		}
		if p, _, _ := e.fire(); p != nil {
			out[index[p]] = append(out[index[p]], now)
		}
		e.begin(now)
	}
	return out
}

func TestEngineKeepsTheVectors(t *testing.T) {
	b, err := os.ReadFile("testdata/engine-vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases map[string][]vector
	if err := json.Unmarshal(b, &cases); err != nil {
		t.Fatal(err)
	}
	if len(cases) != 6 {
		t.Fatalf("%d cases", len(cases))
	}
	for name, vs := range cases {
		got := tokenTimes(reference(), vs)
		wrong := 0
		for i, v := range vs {
			if len(got[i]) != len(v.Times) {
				t.Errorf("%s: job %d made %d tokens, want %d", name, i, len(got[i]), len(v.Times))
				continue
			}
			for k, want := range v.Times {
				// The vectors are rounded to a microsecond.
				if math.Abs(got[i][k]-want) > 0.51e-6 {
					wrong++
					if wrong < 4 {
						t.Errorf("%s: job %d token %d at %.6f, want %.6f", name, i, k, got[i][k], want)
					}
				}
			}
		}
	}
}
