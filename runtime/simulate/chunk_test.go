package simulate

import (
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"
)

// An example by hand, 1 ms a token, a step 10 ms, chunks of 100 tokens, no transfer: A's prompt
// of 50 ends at 0.05, its first token comes at 0.06 s. B's prompt of 250 comes to the same engine at 0.055
// and is prefilled beside A's steps: 0.06–0.17, –0.28, –0.34.
func TestChunksBesideSteps(t *testing.T) {
	m := &Model{Engines: 2, PrefillAtStart: 1, Prefill: Prefill{B: 0.001}, Decode: Decode{C: 0.01}, MaxRunning: 8, KVTokens: 10000}
	e := &engine{model: m, slow: 1, chunk: 100, next: math.Inf(1)}
	a := &job{input: 50, output: 5, told: 5, unsplit: true}
	b := &job{input: 250, output: 2, told: 2, unsplit: true}
	e.addPrefill(a)
	e.begin(0)
	var log []string
	for range 12 {
		if math.IsInf(e.next, 1) {
			break
		}
		now := e.next
		ended, firsts, left := e.fire()
		if ended != nil {
			log = append(log, fmt.Sprintf("%.3f prefilled %d", now, ended.input))
			ended.d = e
			e.addDecode(ended, now)
		}
		for _, j := range firsts {
			log = append(log, fmt.Sprintf("%.3f first %d", now, j.input))
			if j == a {
				e.addPrefill(b)
			}
		}
		for _, j := range left {
			log = append(log, fmt.Sprintf("%.3f left %d", now, j.input))
		}
		e.begin(now)
	}
	want := "[0.050 prefilled 50 0.060 first 50 0.340 prefilled 250 0.350 first 250 0.350 left 50 0.360 left 250]"
	if got := fmt.Sprint(log); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

// However it is cut, a prompt takes as long as whole.
func TestPiecesAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := reference()
		n := rapid.IntRange(1, 20000).Draw(t, "n")
		chunk := rapid.IntRange(1, 4096).Draw(t, "chunk")
		sum := 0.0
		for done := 0; done < n; done += chunk {
			sum += m.piece(done, min(chunk, n-done), done == 0, 1.1)
		}
		if whole := m.prefill(n, 1.1); math.Abs(sum-whole) > 1e-9*float64(n) {
			t.Fatalf("%v in pieces of %d, %v whole", sum, chunk, whole)
		}
	})
}
