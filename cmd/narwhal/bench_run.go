package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/internal/problem"
	"github.com/narwhal-fleet/narwhal/runtime/bench"
)

// benchRun is what the flags of the verb say. It is kept with the run.
type benchRun struct {
	URL     string   `json:"url"`
	Fleet   []string `json:"fleet"`
	Model   string   `json:"model"`
	Chat    bool     `json:"chat"`
	KeyEnv  string   `json:"api_key_env"`
	Journal string   `json:"journal"`
	Out     string   `json:"out"`
	TTFT    float64  `json:"ttft_s"`
	TPOT    float64  `json:"tpot_s"`

	benchLoad

	Timeout     time.Duration `json:"timeout_ns"`
	MaxInFlight int           `json:"max_inflight"`
	Chars       float64       `json:"chars_per_token"`
	Warmup      int           `json:"warmup"`
	Idle        time.Duration `json:"idle_ns"`
	SampleEvery time.Duration `json:"sample_every_ns"`
	Salt        string        `json:"salt"`
	Attainment  float64       `json:"attainment"`
	MaxLag      time.Duration `json:"max_lag_ns"`
}

func benchRunVerb(a *app) *cobra.Command {
	var s benchRun
	c := &cobra.Command{
		Use:   "run [WORKLOAD...]",
		Short: "Offers load to a router or an engine and keeps everything that tells how it went",
		Long: "Offers load to a router, or to an engine alone, and keeps everything that tells how it went.\n\n" +
			"An open loop sends each request at its moment (--rate, --phase, or a WORKLOAD to replay); all times count from\n" +
			"there, so that a late load generator counts against the system and never for it. A closed loop (--concurrency)\n" +
			"keeps that many requests open. --rate and --concurrency may be repeated: each is a point, and points run in order.\n\n" +
			"A WORKLOAD is a file, plain or gzipped: at_s,input,output,class as CSV, the Azure CSV, Mooncake's JSON lines, a router's journal; or an\n" +
			"embedded trace: azure, azure-conv, azure-code. Several are merged into one.\n\n" +
			"Classes of requests: " + benchClassList() + ".\n\n" +
			"The same command and --seed offer the same requests. Sent twice to the same engines they find their prompts in\n" +
			"prefix caches; another --salt changes the words and nothing else.",
		RunE: func(cmd *cobra.Command, args []string) error { return a.benchRun(cmd.Context(), cmd, &s, args) },
	}
	f := c.Flags()
	f.StringVar(&s.URL, "url", "http://"+fleet.DefaultListen, "router or engine")
	fleetFlag(c, &s.Fleet)
	f.StringVar(&s.Model, "model", "", "model to ask for (default: the fleet file's, else the one that the server names)")
	f.BoolVar(&s.Chat, "chat", false, "offer chat completions instead of completions")
	f.StringVar(&s.KeyEnv, "api-key-env", "", "environment variable with the API key")
	f.StringVar(&s.Journal, "journal", "", "journal of the router, where it can be read here; its rows of the run are kept and compared")
	f.StringVar(&s.Out, "out", "", "folder of the run, which must not exist (default: bench/ID in the folder of --state)")
	f.Float64Var(&s.TTFT, "ttft", 0, "promise: seconds to the first token (default: the fleet file's, else the router's)")
	f.Float64Var(&s.TPOT, "tpot", 0, "promise: seconds for each token after it (default: the fleet file's, else the router's)")
	s.benchLoad.flags(c)
	f.StringVar(&s.Salt, "salt", "", "word that begins all prompts (default: the seed)")
	f.DurationVar(&s.Timeout, "timeout", 2*time.Minute, "limit of a request from its moment on")
	f.IntVar(&s.MaxInFlight, "max-inflight", 4096, "most open requests of an open loop; an offer beyond counts as missed")
	f.Float64Var(&s.Chars, "chars-per-token", 0, "characters that a token takes (default: measured by one request)")
	f.IntVar(&s.Warmup, "warmup", 0, "requests, one after the other, before the first point; they are not scored")
	f.DurationVar(&s.Idle, "idle", 30*time.Second, "how long to wait for an idle router before and after each point")
	f.DurationVar(&s.SampleEvery, "sample-every", time.Second, "interval between looks at the router's state and counters")
	f.Float64Var(&s.Attainment, "attainment", 0, "share of all offers that must keep the promise, else exit 1 (default: no threshold)")
	f.DurationVar(&s.MaxLag, "max-lag", 0, "how late the load generator may send, else exit 1 (default: no threshold)")
	return c
}

func (a *app) benchRun(ctx context.Context, cmd *cobra.Command, s *benchRun, workloads []string) error {
	id := bench.NewID(time.Now())
	set := bench.Setup{ID: id, Package: version, URL: s.URL, Model: s.Model, Chat: s.Chat, SLO: bench.SLO{TTFT: s.TTFT, TPOT: s.TPOT}, Seed: s.Seed, Salt: s.Salt,
		Timeout: s.Timeout, MaxInFlight: s.MaxInFlight, CharsPerToken: s.Chars, Warmup: s.Warmup, Idle: s.Idle, SampleEvery: s.SampleEvery,
		Progress: func(line string) { fmt.Fprintf(a.err, "narwhal: %s\n", oneLine(line)) }}
	var err error
	if set.Points, err = s.points(ctx, a, cmd, workloads); err != nil {
		return err
	}
	if err := a.benchTarget(ctx, s, &set); err != nil {
		return err
	}
	if set.Dir = a.abs(s.Out); s.Out == "" {
		runs, err := a.benchRuns()
		if err != nil {
			return err
		}
		set.Dir = filepath.Join(runs, id)
	}
	if _, err := os.Lstat(set.Dir); err == nil {
		return problem.New(problem.Invalid, "bench_run_exists", set.Dir+" exists", "a run has a folder of its own: give another --out, or none")
	}
	set.Config = map[string]any{"workloads": workloads, "flags": s}
	fmt.Fprintf(a.err, "narwhal: run %s in %s\n", id, set.Dir)
	conducted := bench.Conduct(ctx, set)
	return a.benchEnd(ctx, set.Dir, conducted, s)
}

// benchTarget settles what the fleet file and the server say: model, promise, key, journal.
func (a *app) benchTarget(ctx context.Context, s *benchRun, set *bench.Setup) error {
	if len(s.Fleet) > 0 {
		l, err := a.loadFleet(ctx, s.Fleet)
		if err != nil {
			return err
		}
		set.Model = cmp.Or(set.Model, l.fleet.Model)
		set.SLO.TTFT, set.SLO.TPOT = cmp.Or(set.SLO.TTFT, l.fleet.SLO.TTFTS), cmp.Or(set.SLO.TPOT, l.fleet.SLO.TPOTS)
		for _, f := range append(append([]string{}, s.Fleet...), l.fleet.Profiles.Path) {
			if path := a.abs(f); f != "" && f != "-" && regular(path) == nil {
				set.Inputs = append(set.Inputs, path)
			}
		}
	}
	if s.KeyEnv != "" {
		v := a.getenv(s.KeyEnv)
		if v == "" {
			return problem.New(problem.Invalid, "secret_unset", "the environment variable "+s.KeyEnv+" is not set", "export "+s.KeyEnv+" before the run")
		}
		set.Key = fleet.NewSecret(v)
	}
	if s.Journal != "" {
		if set.Journal = a.abs(s.Journal); regular(set.Journal) != nil {
			return problem.Wrap(problem.Invalid, "journal_unreadable", "read --journal", regular(set.Journal), "give the file that narwhal serve writes with --journal, or leave the flag out")
		}
	}
	if err := bench.CheckURL(s.URL); err != nil {
		return problem.Wrap(problem.Invalid, "invalid_arguments", "read --url", err, "--url takes the address of a router or an engine, like http://127.0.0.1:8000")
	}
	r := bench.NewRouter(s.URL, nil)
	defer r.Close()
	model, err := r.ServedModel(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return problem.Wrap(problem.Failed, "server_unreachable", "reach "+s.URL, err, "start the router with narwhal serve, or give --url")
	}
	set.Model = cmp.Or(set.Model, model)
	if set.SLO.TTFT > 0 && set.SLO.TPOT > 0 {
		return nil
	}
	if page, err := r.Metrics(ctx); err == nil {
		if series, err := bench.ParseMetrics(page); err == nil {
			if slo, ok := bench.PromiseOf(series); ok {
				set.SLO.TTFT, set.SLO.TPOT = cmp.Or(set.SLO.TTFT, slo.TTFT), cmp.Or(set.SLO.TPOT, slo.TPOT)
				return nil
			}
		}
	}
	return problem.New(problem.Invalid, "no_promise", "no promise is known: the server tells none", "give --ttft and --tpot in seconds, or the fleet file with -f")
}

// benchEnd reports what was kept, whatever ended the run.
func (a *app) benchEnd(ctx context.Context, dir string, conducted error, s *benchRun) error {
	f, err := bench.ReadFolder(dir)
	if err != nil {
		return problem.Wrap(problem.Failed, "bench_failed", "run the load", errors.Join(conducted, err), "check the folder of the run")
	}
	r := f.Score()
	res := &result{data: r, text: func(w io.Writer) { printBench(w, r) }}
	if err := r.Save(); err != nil {
		conducted = errors.Join(conducted, err)
	} else {
		res.artifacts = []artifact{{"bench-run", dir, "created"}, {"report", filepath.Join(dir, "report.json"), "created"}}
	}
	res.status, res.problems = benchVerdict(r, s.Attainment, s.MaxLag.Seconds())
	a.result = res
	if conducted == nil {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return problem.Wrap(problem.Failed, "bench_failed", "run the load", conducted, "what was measured is kept: narwhal bench report "+f.Manifest.ID)
}
