package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/narwhal-fleet/narwhal/internal/atomicfile"
	"github.com/narwhal-fleet/narwhal/internal/problem"
	"github.com/narwhal-fleet/narwhal/runtime/simulate"
)

// simulation is what the flags of the verb say.
type simulation struct {
	engines    string
	prefill    int
	policies   []string
	seed       uint64
	slow       float64
	ttft, tpot float64
	score      string
	compare    bool
	topologies []string
	relaunch   time.Duration
	classes    bool
	html       string
	replay     bool
	trouble    simulate.Trouble
	deaths     []string
	prefixes   int
}

func simulateVerb(a *app) *cobra.Command {
	var s simulation
	c := &cobra.Command{
		Use:   "simulate WORKLOAD...",
		Short: "Replays arrivals through the scheduler and the role controller, in virtual time",
		Long: "Replays arrivals through the router's scheduler and role controller, on engines modelled from curves.\n" +
			"Each policy is set beside the best static split and a bound that no policy can pass.\n\n" +
			"A workload is a file, plain or gzipped: at_s,input,output,class as CSV, the Azure CSV, Mooncake's JSON\n" +
			"lines or a router's journal; or an embedded trace: azure, azure-conv, azure-code. Several are merged into one.\n\n" +
			"With --replay-decisions the files are journals, and nothing is simulated: each placement and each decision of\n" +
			"the controller is made again from the inputs that the journal has, and must come out the same.",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if s.replay {
				return a.replayDecisions(cmd, args)
			}
			config, err := s.config(cmd.Context(), a, args)
			if err != nil {
				return err
			}
			if err := s.writable(a, args); err != nil {
				return err
			}
			r, err := simulate.Run(cmd.Context(), config)
			if err != nil {
				if cmd.Context().Err() != nil {
					return problem.Wrap(problem.Interrupted, "interrupted", "simulate", err, "")
				}
				if errors.Is(err, simulate.ErrConfig) {
					return problem.Wrap(problem.Invalid, "invalid_arguments", "simulate", err, "narwhal simulate --help lists the policies; the engine model is read from --engines")
				}
				return problem.Wrap(problem.Failed, "simulation_failed", "simulate", err, "this is an error of the simulator; report the seed and the workload")
			}
			a.result = &result{data: r, text: func(w io.Writer) { printSimulation(w, r, s.classes) }}
			if s.html == "" {
				return nil
			}
			page, err := simulate.Page(r, config.Params.TTFT)
			if err != nil {
				return problem.Wrap(problem.Failed, "page_failed", "simulate", err, "this is an error of the simulator; report the seed and the workload")
			}
			if err := s.writable(a, args); err != nil {
				return err
			}
			if err := atomicfile.Write(a.abs(s.html), page, 0o644); err != nil {
				return problem.Wrap(problem.Failed, "page_unwritten", "write --html "+s.html, err, "name a file in a folder that exists and can be written")
			}
			a.result.artifacts = []artifact{{"page", s.html, "created"}}
			return nil
		},
	}
	f := c.Flags()
	f.StringVar(&s.engines, "engines", "", "engine model and promises, JSON (default: the simulated engines of the sandbox)")
	f.IntVar(&s.prefill, "prefill-at-start", 0, "engines that start as prefill (default: the model's)")
	f.StringArrayVar(&s.policies, "policy", nil, strings.Join(simulate.PolicyNames(), ", ")+" or static:xPyD; may be repeated (default: default)")
	f.StringSliceVar(&s.topologies, "topology", nil, "aggregated, static, cold-swap, hot-swap: those to play each policy in, by commas (default: the policy's own)")
	f.DurationVar(&s.relaunch, "relaunch", 2*time.Minute, "how long a drained engine is away when cold-swap changes its role")
	f.BoolVar(&s.classes, "classes", false, "show every class of requests below its arm")
	f.StringVar(&s.html, "html", "", "write a page with timelines to this file")
	f.Uint64Var(&s.seed, "seed", 1, "seed of the requests' names, which break ties")
	f.Float64Var(&s.slow, "slow", 1, "how many times slower engines are than their profile says")
	f.StringVar(&s.trouble.Lengths, "lengths", "", "what clients tell of their answers' lengths: capped (a power of two above) or uncapped (default: the length)")
	f.Float64Var(&s.trouble.Report, "report", 0, "seconds between engines' reports, which are all the router sees of them; 0 = it sees them as they are")
	f.Float64Var(&s.trouble.Late, "report-late", 0, "seconds that a report takes to arrive")
	f.Float64Var(&s.trouble.Lost, "report-lost", 0, "share of reports that are lost")
	f.Float64Var(&s.trouble.Skew, "report-skew", 0, "most seconds that the times of an engine's reports are off")
	f.StringArrayVar(&s.deaths, "dies", nil, "ENGINE@FROM or ENGINE@FROM-BACK: engine number (from 0) that ends at a second, and is there again; may be repeated")
	f.IntVar(&s.prefixes, "prefix-cache", 0, "tokens of prompts that begin alike which each engine keeps (columns family and prefix of a workload)")
	f.IntVar(&s.trouble.Attempts, "attempts", 1, "how often a request is placed that was lost with an engine before its first token")
	f.Float64Var(&s.ttft, "ttft", 0, "promise: seconds to the first token (default: the workload's in --engines)")
	f.Float64Var(&s.tpot, "tpot", 0, "promise: seconds for each token after it (default: the workload's in --engines)")
	f.StringVar(&s.score, "score", "", "class of requests that is scored (default: the workload's in --engines, else all)")
	f.BoolVar(&s.replay, "replay-decisions", false, "make the decisions of journals again and compare them; exit 8 where one differs")
	f.BoolVar(&s.compare, "compare", false, "show every static split as an arm")
	return c
}

// writable refuses a page in the place of an input, of anything but a regular file, or in a folder
// that is absent.
func (s *simulation) writable(a *app, inputs []string) error {
	if s.html == "" {
		return nil
	}
	bad := func(why string) error {
		return problem.New(problem.Invalid, "invalid_arguments", "--html "+s.html+": "+why, "name a file of its own in a folder that exists")
	}
	path := a.abs(s.html)
	if st, err := os.Stat(filepath.Dir(path)); err != nil || !st.IsDir() {
		return bad("its folder is absent")
	}
	st, err := os.Lstat(path)
	if err != nil {
		return nil // absent
	}
	if !st.Mode().IsRegular() {
		return bad("it is no regular file")
	}
	for _, in := range append(inputs, s.engines) {
		if other, err := os.Stat(a.abs(in)); in != "" && err == nil && os.SameFile(st, other) {
			return bad("the simulation reads this file")
		}
	}
	return nil
}

// engineFile is the form of an --engines file. What else it holds is not read.
type engineFile struct {
	Model     *simulate.Model `json:"model"`
	Workloads map[string]struct {
		SLO struct {
			TTFT float64 `json:"ttft_s"`
			TPOT float64 `json:"tpot_s"`
		} `json:"slo"`
		Score string `json:"score"`
	} `json:"workloads"`
}

// maxEngineFile bounds an --engines file.
const maxEngineFile = 4 << 20

// sandboxModel is the sandbox's four engines with the default latencies of a simulated
// launch: 4,096 blocks of 16 tokens, 64 sequences.
func sandboxModel() *simulate.Model {
	return &simulate.Model{Engines: 4, PrefillAtStart: 2, Prefill: simulate.Prefill{B: 2e-5, C: 0.002},
		Decode: simulate.Decode{C: 0.002, R: 1e-4, M: 1e-7}, MaxRunning: 64, KVTokens: 65536, Transfer: simulate.Transfer{Base: 0.0005}}
}

func (s simulation) config(ctx context.Context, a *app, workloads []string) (simulate.Config, error) {
	file := engineFile{Model: sandboxModel()}
	if s.engines != "" {
		var err error
		if file, err = within(ctx, func() (engineFile, error) { return readEngineFile(a.abs(s.engines)) }); err != nil {
			return simulate.Config{}, problem.Wrap(problem.Invalid, "bad_engine_model", "read --engines "+s.engines, err,
				`want {"model": {"engines", "prefill_at_start", "prefill": {"a","b","c"}, "decode": {"c","r","m"}, "max_running", "kv_tokens", "transfer": {"base","per_token"}}}`)
		}
	}
	arrivals, heads, names, err := readWorkloads(ctx, a, workloads)
	if err != nil {
		return simulate.Config{}, err
	}
	name := strings.Join(names, "+")
	known := file.Workloads[name]
	ttft, tpot := cmp.Or(s.ttft, known.SLO.TTFT), cmp.Or(s.tpot, known.SLO.TPOT)
	if s.ttft < 0 || s.tpot < 0 {
		return simulate.Config{}, problem.New(problem.Invalid, "invalid_arguments", fmt.Sprintf("a promise of %g s and %g s", s.ttft, s.tpot), "give --ttft and --tpot in seconds, above zero")
	}
	if ttft <= 0 || tpot <= 0 {
		return simulate.Config{}, problem.New(problem.Invalid, "no_promise", "no promise is known for workload "+name, "give --ttft and --tpot in seconds, or an --engines file with workloads."+name+".slo")
	}
	c := simulate.Defaults(ttft, tpot)
	c.Workload, c.Arrivals, c.Score, c.Model = name, arrivals, cmp.Or(s.score, known.Score), *file.Model
	c.Slow, c.Policies, c.Compare, c.Seed = s.slow, s.policies, s.compare, s.seed
	c.Trouble, c.Heads, c.PrefixTokens = s.trouble, heads, s.prefixes
	if c.Unlike, err = deaths(s.deaths); err != nil {
		return simulate.Config{}, err
	}
	c.Topologies, c.Relaunch, c.Timeline = s.topologies, s.relaunch.Seconds(), s.html != ""
	if s.prefill != 0 {
		c.Model.PrefillAtStart = s.prefill
	}
	return c, nil
}

func readEngineFile(path string) (f engineFile, err error) {
	in, err := os.Open(path)
	if err != nil {
		return f, err
	}
	defer in.Close()
	b, err := io.ReadAll(io.LimitReader(in, maxEngineFile+1))
	if err != nil {
		return f, err
	}
	if len(b) > maxEngineFile {
		return f, fmt.Errorf("longer than %d bytes", maxEngineFile)
	}
	if err := json.NewDecoder(bytes.NewReader(b)).Decode(&f); err != nil {
		return f, err
	}
	if f.Model == nil {
		return f, errors.New("model is missing")
	}
	return f, nil
}

// readWorkloads is readTraces with what prompts share and the traces' names.
func readWorkloads(ctx context.Context, a *app, from []string) (out []simulate.Arrival, heads []simulate.Head, names []string, err error) {
	merged, err := a.readTraces(ctx, from)
	if err != nil {
		return nil, nil, nil, err
	}
	for _, w := range from {
		base := strings.TrimSuffix(filepath.Base(w), ".gz")
		names = append(names, strings.TrimSuffix(base, filepath.Ext(base)))
	}
	out, heads = make([]simulate.Arrival, len(merged.Arrivals)), make([]simulate.Head, len(merged.Arrivals))
	for i, x := range merged.Arrivals {
		out[i] = simulate.Arrival{At: x.At.Seconds(), Input: x.Input, Output: x.Output, Class: x.Class}
		heads[i] = simulate.Head{Family: x.Family, Tokens: x.Prefix}
	}
	return out, heads, names, nil
}

func printSimulation(w io.Writer, r simulate.Result, classes bool) {
	fmt.Fprintf(w, "%s: %d requests offered\n\n%-14s %-10s %9s %11s %8s %6s  %-26s %s\n", r.Workload, r.Offered,
		"policy", "topology", "qualified", "attainment", "refused", "moves", "first token p50/p95/p99", "token interval p50/p95/p99")
	for _, x := range r.Arms {
		fmt.Fprintf(w, "%-14s %-10s %9d %9.2f %% %8d %6d  %-26s %s\n", x.Policy, x.Topology, x.Qualified, 100*x.Attainment, x.Refused, x.Moves,
			triple(x.TTFT, 0), triple(x.TPOT, 1))
		for _, k := range x.Classes {
			if classes {
				name := fmt.Sprintf("%s, %d offered", cmp.Or(k.Class, "(no class)"), k.Offered)
				fmt.Fprintf(w, "  %-23s %9d %9.2f %% %8d %6s  %s\n", name, k.Qualified, 100*k.Attainment, k.Refused, "", triple(k.TTFT, 0))
			}
		}
	}
	fmt.Fprintf(w, "\n%-25s %9d %9.2f %%  %s\n%-25s %9d %9.2f %%  no policy does better\n", "best static split", r.BestStatic.Qualified,
		100*r.BestStatic.Attainment, r.BestStatic.Policy, "hindsight bound", r.Hindsight.Qualified, 100*r.Hindsight.Attainment)
}

func triple(p simulate.Percentiles, digits int) string {
	one := func(v *float64) string {
		if v == nil {
			return "–"
		}
		return fmt.Sprintf("%.*f", digits, *v)
	}
	return one(p.P50) + "/" + one(p.P95) + "/" + one(p.P99) + " ms"
}
