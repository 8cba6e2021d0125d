package main

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/narwhal-fleet/narwhal/internal/problem"
)

// limits are what a numeric flag may be, in its unit; without says what leaving it out means.
type limits struct {
	flag        string
	least, most float64
	unit        string
	without     string
}

const (
	day     = 86400.0
	shortly = 0.001 // the least time that is one, in seconds
)

// ranges has a row for each numeric flag of the command line.
var ranges = []limits{
	{"port", 0, 65535, "", "8000 is taken; 0 takes a free one"},
	{"max-concurrent", 1, 1e6, "requests", "serving.max_connections counts"},
	{"graceful-timeout", 0, day, "s", "serving.graceful_timeout_s counts"},
	{"standby-probe-interval", 0.01, 60, "s", ""},
	{"standby-takeover-after", 1, 1000, "looks", ""},
	{"standby-max-handoff-age", 0.1, day, "s", ""},
	{"lease-ttl", shortly, 3600, "s", ""},
	{"lease-renew-interval", shortly, 3600, "s", ""},
	{"lease-safety-margin", 0, 3600, "s", ""},
	{"keep-alive", 0, 3600, "s", "no comment is sent; so with 0"},
	{"lame-duck", 0, 3600, "s", ""},
	{"relaunch", 0, day, "s", ""},
	{"idle-timeout", shortly, day, "s", ""},
	{"header-timeout", shortly, 3600, "s", ""},
	{"lend-from", 0, 1, "", "0.1 counts; 0 = never"},
	{"max-header-bytes", 1024, 16 << 20, "bytes", ""},
	{"journal-max-mb", 0, 1 << 20, "MB", "256 MB count; 0 = a file never ends by its size"},
	{"journal-max-age", 0, 3650 * day, "s", "no file ends by its age; so with 0"},
	{"journal-keep", 0, 1e6, "files", "all are kept; so with 0"},
	{"drain", shortly, day, "s", ""},
	{"hosts", 1, 64, "hosts", ""},
	{"engines-per-host", 1, 8, "engines", ""},
	{"pid", 0, 1 << 31, "", "0 = no process"},
	{"side-channel", 0, 65535, "", "0 = none"},
	{"prefill-at-start", 0, 1e6, "engines", "the model's number counts"},
	{"slow", 0.001, 1000, "times", ""},
	{"seed", 0, 1 << 64, "", ""},
	{"report", 0, 3600, "s", "engines are seen as they are"},
	{"report-late", 0, 3600, "s", ""},
	{"report-lost", 0, 0.999, "", ""},
	{"report-skew", 0, 3600, "s", ""},
	{"attempts", 1, 100, "", ""},
	{"prefix-cache", 0, 1e9, "tokens", "engines keep no prompts"},
	{"ttft", 0, day, "s", "the promise that is known counts"},
	{"tpot", 0, day, "s", "the promise that is known counts"},
	{"requests", 0, 2e6, "requests", ""},
	{"duration", 0, 7 * day, "s", ""},
	{"cv", 0.05, 20, "", ""},
	{"input-tokens", 0, 1e7, "tokens", ""},
	{"output-tokens", 0, 1e7, "tokens", ""},
	{"max-input", 0, 1e7, "tokens", ""},
	{"max-output", 0, 1e7, "tokens", ""},
	{"speed", 0.001, 1e6, "times", ""},
	{"timeout", shortly, day, "s", ""},
	{"deadline", shortly, day, "s", ""},
	{"max-inflight", 1, 1e6, "requests", ""},
	{"chars-per-token", 0, 1000, "characters", "they are measured"},
	{"warmup", 0, 1e5, "requests", ""},
	{"idle", 0, 3600, "s", ""},
	{"sample-every", 0.05, 3600, "s", ""},
	{"attainment", 0, 1, "", "there is no threshold"},
	{"max-lag", 0, 3600, "s", "there is no threshold"},
	{"budget", 0.001, 100, "%", ""},
	{"every", shortly, day, "s", ""},
	{"overdue", 0, 365 * day, "s", ""},
	{"repeats", 1, 1000, "times", ""},
	{"prefill-repeats", 1, 100, "samples", "deploy.profile counts, or 3"},
	{"decode-tokens", 3, 4096, "tokens", "deploy.profile counts, or 32"},
	{"sweep-budget", shortly, day, "s", "deploy.profile counts, or 2 minutes"},
	{"rounds", 0, 1e9, "rounds", "0 goes on until it is interrupted"},
}

// inRange refuses a flag of the command line whose number is none that it may have.
func inRange(c *cobra.Command) error {
	var errs problem.Set
	c.Flags().Visit(func(f *pflag.Flag) {
		for _, l := range ranges {
			if l.flag != f.Name {
				continue
			}
			if v, ok := number(f); ok && !(v >= l.least && v <= l.most) {
				errs = append(errs, problem.New(problem.Invalid, "invalid_arguments", fmt.Sprintf("--%s is %s", f.Name, f.Value), l.says()))
			}
		}
	})
	if len(errs) == 0 {
		return nil
	}
	return errs
}

// number reads a numeric flag; durations count in seconds.
func number(f *pflag.Flag) (float64, bool) {
	switch f.Value.Type() {
	case "int", "int64", "uint64", "float64":
		v, err := strconv.ParseFloat(f.Value.String(), 64)
		return v, err == nil || errors.Is(err, strconv.ErrRange)
	case "duration":
		d, err := time.ParseDuration(f.Value.String())
		return d.Seconds(), err == nil
	}
	return 0, false
}

func (l limits) says() string {
	text := func(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }
	s := fmt.Sprintf("--%s takes %s to %s %s", l.flag, text(l.least), text(l.most), l.unit)
	if l.unit == "" {
		s = s[:len(s)-1]
	}
	if l.without != "" {
		s += "; without it " + l.without
	}
	return s
}
