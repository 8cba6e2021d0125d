package gates

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/fleet/remote"
	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/internal/problem"
)

func TestClean(t *testing.T) {
	for in, want := range map[string]string{
		"":                         "",
		"plain":                    "plain",
		" two\nlines\tand tab \n":  "two lines and tab",
		"a\x1b[31mred\x1b[0m\x07":  "a[31mred[0m",
		"bad \xff\xfe bytes":       "bad ? bytes",
		"right\u202eto left\u200b": "rightto left",
		strings.Repeat("x", 30):    strings.Repeat("x", 20) + "…",
		strings.Repeat("é", 30):    strings.Repeat("é", 10) + "…",
		strings.Repeat("世", 30):    strings.Repeat("世", 6) + "…",
	} {
		if got := clean(in, 20); got != want || !utf8.ValidString(got) {
			t.Errorf("clean(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestStatusOf(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want problem.Status
	}{
		"a plain error":      {errors.New("x"), problem.Failed},
		"a problem":          {problem.New(problem.Locked, "c", "m", ""), problem.Locked},
		"a changed host key": {fmt.Errorf("reach: %w", &remote.ChangedHostKeyError{}), problem.Unverified},
		"an unknown one":     {&remote.HopError{Host: "h", Hop: "h", Err: &remote.UnknownHostKeyError{}}, problem.Unverified},
		"a refused command":  {&remote.PolicyError{Err: ErrUnplanned}, problem.Refused},
		"an exit":            {&remote.ExitError{Code: 1}, problem.Failed},
	} {
		if got := StatusOf(c.err); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestWithStderr(t *testing.T) {
	exit := &remote.ExitError{Host: "h1", Command: "x", Code: 4, LastLine: "hint"}
	for name, c := range map[string]struct {
		err    error
		stderr string
		want   string
	}{
		"what the binary said": {exit, "narwhal: error: port 80 is taken\n", "port 80 is taken"},
		"control characters":   {exit, "bad\x1b[2J\n", "bad[2J"},
		"nothing":              {exit, " \n", exit.Error()},
		"another error":        {fs.ErrNotExist, "noise", fs.ErrNotExist.Error()},
	} {
		got := withStderr(c.err, remote.Result{Stderr: []byte(c.stderr)})
		if got.Error() != c.want || !errors.Is(got, c.err) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// secretive is a third gate whose launch needs a secret.
type secretive struct{ third }

func (secretive) Plan(ctx context.Context, v View) (Plan, error) {
	p, err := third{}.Plan(ctx, v)
	for i := range p.Steps {
		if p.Steps[i].ID == "C/launch" {
			p.Steps[i].Secrets = map[string]fleet.SecretRef{"TOKEN": "env:TOKEN"}
		}
	}
	return p, err
}

// secretHost notes which secrets came with a command.
type secretHost struct {
	*world
	got map[string]string
}

func (h *secretHost) Run(ctx context.Context, c remote.Command) (remote.Result, error) {
	for name, v := range c.SecretEnv {
		h.got[nameOf(c)+" "+name] = v.Reveal()
	}
	return h.world.Run(ctx, c)
}

// TestSecretsReachTheCommandAlone: neither record nor plan holds the value.
func TestSecretsReachTheCommandAlone(t *testing.T) {
	r := newRig(t)
	r.gates = []Gate{first{}, secretive{}}
	h := &secretHost{r.world, map[string]string{}}
	run, end := r.open()
	run.Connect = func(context.Context, string) (Host, error) { return h, nil }
	run.Secrets = func(ref fleet.SecretRef) (fleet.Secret, error) {
		if ref != "env:TOKEN" {
			t.Errorf("asked for %s", ref)
		}
		return fleet.NewSecret("s3cret-value"), nil
	}
	if out, err := run.Run(t.Context(), Options{}); err != nil || out.Status != problem.Success {
		t.Fatal(out.Status, err, out.Errors)
	}
	end()
	if len(h.got) != 1 || h.got["launch TOKEN"] != "s3cret-value" {
		t.Errorf("secrets went to %v", h.got)
	}
	err := filepath.WalkDir(r.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		if strings.Contains(string(b), "s3cret-value") {
			t.Errorf("%s holds the secret", d.Name())
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func TestSecretThatIsMissing(t *testing.T) {
	r := newRig(t)
	r.gates = []Gate{first{}, secretive{}}
	out, err := r.run(t.Context(), Options{})
	if err != nil || out.Status != problem.Failed || !strings.Contains(out.Errors[0].Message, "secret TOKEN") {
		t.Fatalf("%v, %v, %+v", out.Status, err, out.Errors)
	}
	if r.world.proc != nil {
		t.Error("it was launched without its secret")
	}
}

// brokenHost is a connection that has ended.
type brokenHost struct {
	*world
	err error
}

func (h *brokenHost) Err() error { return h.err }

func TestConnectionIsOpenedAgain(t *testing.T) {
	r := newRig(t)
	run, end := r.open()
	defer end()
	opened := 0
	h := &brokenHost{world: r.world}
	run.Connect = func(context.Context, string) (Host, error) { opened++; return h, nil }
	for i, c := range []struct {
		err  error
		want int
	}{{nil, 1}, {nil, 1}, {errors.New("lost"), 2}, {errors.New("lost"), 3}} {
		h.err = c.err
		if _, err := run.host(t.Context(), "h1"); err != nil || opened != c.want {
			t.Errorf("look %d: opened %d times, want %d (%v)", i, opened, c.want, err)
		}
	}
	if r.world.closed != 2 {
		t.Errorf("closed %d of two lost connections", r.world.closed)
	}
}

// TestTruncatedAnswerIsNoEvidence: what was cut off is never taken for whole.
func TestTruncatedAnswerIsNoEvidence(t *testing.T) {
	r := newRig(t)
	run, end := r.open()
	defer end()
	run.Connect = func(context.Context, string) (Host, error) { return &cutAnswers{r.world}, nil }
	out, err := run.Run(t.Context(), Options{})
	if err != nil || out.Status != problem.Failed || !strings.Contains(out.Errors[0].Message, "longer than the limit") {
		t.Errorf("%v, %v, %+v", out.Status, err, out.Errors)
	}
	if e, ok := r.state().Evidence("A/host/h1"); ok {
		t.Errorf("recorded %+v", e)
	}
}

type cutAnswers struct{ *world }

func (h *cutAnswers) Run(ctx context.Context, c remote.Command) (remote.Result, error) {
	res, err := h.world.Run(ctx, c)
	res.Truncated = true
	return res, err
}

func TestView(t *testing.T) {
	r := newRig(t)
	r.pass(Options{})
	s, err := record.Read(r.dir)
	if err != nil {
		t.Fatal(err)
	}
	v, err := ViewAt(s.State, s.Load)
	if err != nil || v.Fleet.Model != "m" || v.Release.SHA256 != "r1" || v.Run != "run-1" {
		t.Fatalf("%+v, %v", v.Release, err)
	}
	if !v.Has("A/host/h1") || v.Has("A/host/h2") || v.Has("") || v.Wants("A/host/h1") {
		t.Error("the view has or wants other evidence than the record")
	}
	if when, ok := v.Taken("A/host/h1"); !ok || when.IsZero() {
		t.Errorf("taken at %s, %v", when, ok)
	}
	var n int
	if err := v.Decode("A/host/h1", &n); err == nil {
		t.Error("text was decoded")
	}
	g := s.State.Gates["A"]
	e := g.Evidence["A/host/h1"]
	e.Stale, e.Because = true, "rebooted"
	g.Evidence["A/host/h1"] = e
	if _, err := v.Evidence("A/host/h1"); err == nil || !strings.Contains(err.Error(), "rebooted") || v.Has("A/host/h1") || v.Digest("A/host/h1") != "" {
		t.Errorf("stale evidence counts: %v", err)
	}
}
