package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/narwhal-fleet/narwhal/runtime/simulate"
)

// The published evaluation gives six engines, a first token within 2.1 s of the moment that a
// request was due, 45 ms a token, and how many requests of which kind came in how many phases.
// All else here is assumed: how long phases are, where in them requests fall, how long prompts
// and answers are, and what engines do.
const (
	rebuiltTTFT, rebuiltTPOT = 2.1, 0.045
	rebuiltEngines           = 6
)

// kindOf is one class of requests: mean lengths in tokens. Lengths are drawn evenly from half
// of the mean to one and a half times it.
type kindOf struct {
	name          string
	input, output int
}

// plan is a workload: how many requests of each class come in each phase of equal length.
type plan struct {
	name   string
	phase  float64 // seconds of a phase
	kinds  []kindOf
	counts [][]int // by class, then by phase
}

// fleetOf is an engine model that a plan is played on. Prompts and answers are longer for
// engines that are faster, so that the same number of requests is as much work.
type fleetOf struct {
	name          string
	model         simulate.Model
	longer, later int // times that prompts and answers are longer
}

var rebuiltFleets = []fleetOf{
	{"large dense", simulate.Model{Engines: rebuiltEngines, PrefillAtStart: 3, Prefill: simulate.Prefill{A: 2e-9, B: 1.2e-4, C: 0.03},
		Decode: simulate.Decode{C: 0.03, R: 2.5e-4, M: 2.5e-8}, MaxRunning: 32, KVTokens: 400_000, Transfer: simulate.Transfer{Base: 0.005, PerToken: 2e-6}}, 1, 1},
	{"small", simulate.Model{Engines: rebuiltEngines, PrefillAtStart: 3, Prefill: simulate.Prefill{A: 1e-10, B: 2e-5, C: 0.01},
		Decode: simulate.Decode{C: 0.008, R: 1.2e-4, M: 1e-8}, MaxRunning: 128, KVTokens: 1_000_000, Transfer: simulate.Transfer{Base: 0.003, PerToken: 4e-7}}, 6, 2},
}

// chatDocument has 6,810 chats and 7,440 documents: six phases of chats, five of documents
// between them.
var chatDocument = plan{name: "chat/document", phase: 120,
	kinds:  []kindOf{{"chat", 450, 380}, {"document", 2400, 60}},
	counts: [][]int{{1135, 0, 1135, 0, 1135, 0, 1135, 0, 1135, 0, 1135}, {0, 1488, 0, 1488, 0, 1488, 0, 1488, 0, 1488, 0}}}

// mixedHour has 14,419 requests of five classes, 6,310 of them documents, in nine phases of an
// hour.
var mixedHour = plan{name: "mixed", phase: 400,
	kinds: []kindOf{{"short chat", 120, 150}, {"chat", 450, 600}, {"history", 5000, 500}, {"document", 8000, 150}, {"long generation", 300, 3000}},
	counts: [][]int{
		{900, 150, 350, 200, 150, 1000, 250, 150, 450},
		{700, 100, 300, 200, 100, 700, 159, 100, 250},
		{100, 60, 140, 80, 60, 120, 460, 60, 120},
		{120, 1400, 750, 100, 1400, 240, 400, 1400, 500},
		{40, 30, 60, 330, 30, 40, 60, 30, 80}}}

// arrivals draws the plan: in each phase so many requests as it says, evenly at random.
func (p plan) arrivals(f fleetOf, seed uint64) []simulate.Arrival {
	r := rand.New(rand.NewPCG(seed, 21))
	var out []simulate.Arrival
	for k, kind := range p.kinds {
		input, output := kind.input*f.longer, kind.output*f.later
		for phase, n := range p.counts[k] {
			for range n {
				out = append(out, simulate.Arrival{At: float64(phase)*p.phase + jitter(r, p.phase),
					Input: input/2 + r.IntN(input), Output: output/2 + r.IntN(output), Class: kind.name})
			}
		}
	}
	return ordered(out)
}

// total is how many requests the plan has, all and of one class.
func (p plan) total(class string) (n int) {
	for k, kind := range p.kinds {
		for _, c := range p.counts[k] {
			if class == "" || class == kind.name {
				n += c
			}
		}
	}
	return n
}

// assumed lists what the published text does not say.
func (p plan) assumed() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Assumed: %d phases of %g s; requests evenly at random in theirs; lengths evenly from half of the mean to one and a half times it.\n\n", len(p.counts[0]), p.phase)
	b.WriteString("| Class | Requests by phase | Mean prompt | Mean answer |\n| --- | --- | ---: | ---: |\n")
	for k, kind := range p.kinds {
		fmt.Fprintf(&b, "| %s | %s | %d | %d |\n", kind.name, strings.Trim(fmt.Sprint(p.counts[k]), "[]"), kind.input, kind.output)
	}
	return b.String() + "\n"
}

func (f fleetOf) assumed() string {
	m := f.model
	return fmt.Sprintf("| %s | %g·n² + %g·n + %g | %g + %g·r + %g·k | %d | %d | %g + %g·n | %d, %d |\n", f.name, m.Prefill.A, m.Prefill.B, m.Prefill.C,
		m.Decode.C, m.Decode.R, m.Decode.M, m.MaxRunning, m.KVTokens, m.Transfer.Base, m.Transfer.PerToken, f.longer, f.later)
}

// config is one plan on one fleet.
func (p plan) config(f fleetOf, seed uint64) simulate.Config {
	c := simulate.Defaults(rebuiltTTFT, rebuiltTPOT)
	c.Workload, c.Model, c.Arrivals, c.Seed = p.name+", "+f.name, f.model, p.arrivals(f, seed), seed
	return c
}

// rebuilt is the section of the published workloads, as far as their text gives them.
func (e *evaluation) rebuilt() (string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "## The published workloads, rebuilt\n\nThe published evaluation of the reference names %d engines, a first token within %g s of the moment that a request was due, %g ms a token, and what the two tables below count: %d requests, %d chats and %d documents, in phases that begin and end with chat; and %d requests of five classes, %d documents, in nine phases of an hour. The rest of it is not given.\n\n",
		rebuiltEngines, rebuiltTTFT, 1000*rebuiltTPOT, chatDocument.total(""), chatDocument.total("chat"), chatDocument.total("document"), mixedHour.total(""), mixedHour.total("document"))
	b.WriteString("Assumed of engines, in seconds, n tokens of a prompt, r requests of a batch that hold k tokens:\n\n| Engines | Prefill | Decode step | Batch | Cache, tokens | Transfer | Prompts, answers longer, times |\n| --- | --- | --- | ---: | ---: | --- | --- |\n")
	for _, f := range rebuiltFleets {
		b.WriteString(f.assumed())
	}
	b.WriteString("\n")
	for _, p := range []plan{chatDocument, mixedHour} {
		fmt.Fprintf(&b, "### %s\n\n%s", p.name, p.assumed())
		for _, f := range rebuiltFleets {
			r, err := e.run(p.name+", "+f.name, p.config(f, 1))
			if err != nil {
				return "", err
			}
			fmt.Fprintf(&b, "On engines of kind %s. Best static split %s: %s. Hindsight bound: %s. %s\n\n", f.name, r.BestStatic.Policy, percent(r.BestStatic.Attainment),
				percent(r.Hindsight.Attainment), goals(p, r))
			b.WriteString(table(r.Arms, r))
		}
	}
	return b.String(), nil
}

// goals sets the result beside what was aimed at.
func goals(p plan, r simulate.Result) string {
	own := r.Arms[0]
	if p.name == chatDocument.name {
		return fmt.Sprintf("Aim: within 5 points of the bound; it is %.2f below.", 100*(r.Hindsight.Attainment-own.Attainment))
	}
	fifo := r.Arms[slices.IndexFunc(r.Arms, func(a simulate.Arm) bool { return a.Policy == "reactive-fifo" })]
	short := own.Classes[slices.IndexFunc(own.Classes, func(k simulate.Class) bool { return k.Class == "short chat" })]
	return fmt.Sprintf("Aim: 20 points above reactive-fifo, of which the bound leaves room for %.2f, and short chats' first token within 2 s at the 95th percentile; it is %.2f points above, and they have %s ms.",
		100*min(0.2, r.Hindsight.Attainment-fifo.Attainment), 100*(own.Attainment-fifo.Attainment), ms(short.TTFT.P95))
}
