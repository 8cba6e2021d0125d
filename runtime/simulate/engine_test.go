package simulate

import (
	"encoding/json"
	"math"
	"os"
	"testing"
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
	e := &engine{model: &m, slow: 1}
	jobs := make([]*job, len(vs))
	var q events
	for i, v := range vs {
		jobs[i] = &job{input: v.Input, output: v.Output}
		q.add(event{at: v.At, kind: arrival, job: jobs[i]})
	}
	index := map[*job]int{}
	for i, j := range jobs {
		index[j] = i
	}
	out := make([][]float64, len(vs))
	for q.Len() > 0 {
		ev := q.next()
		switch ev.kind {
		case arrival:
			if vs[index[ev.job]].Kind == "prefill" {
				e.addPrefill(ev.job)
			} else {
				e.addDecode(ev.job, ev.at)
				q.add(event{at: ev.job.ready, kind: joinable, engine: e})
			}
		case phaseEnd:
			was := append([]*job(nil), e.batch...)
			if p, _, _ := e.finish(ev.at); p != nil {
				was = []*job{p}
			}
			for _, j := range was {
				out[index[j]] = append(out[index[j]], ev.at)
			}
		}
		q.advance(e, ev.at)
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
