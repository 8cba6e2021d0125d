package gates

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/fleet/remote"
	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/internal/problem"
)

func TestLeaseHeldByAnother(t *testing.T) {
	r := newRig(t)
	r.world.lease = "op2@other \x1b[31mpid 7"
	out, err := r.run(t.Context(), Options{})
	if out.Status != problem.Locked || problem.StatusOf(err) != problem.Locked {
		t.Fatalf("got %v, %v", out.Status, err)
	}
	for _, want := range []string{"op2@other", "host h1", "2027-01-15T08:00:00Z"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not name %q", err, want)
		}
	}
	if strings.Contains(err.Error(), "\x1b") {
		t.Errorf("%q holds a control character", err)
	}
	equal(t, "calls", r.world.took(), []string{"probe", "lease"})
	if got := r.kinds(record.KindIntent); len(got) != 0 || r.world.lease == "" {
		t.Errorf("intents %v, lease %q", got, r.world.lease)
	}
	r.world.lease = ""
	r.pass(Options{})
	r.verify()
}

// TestLeaseIsAskedForAtEachGate finds at the next gate that somebody took an expired lease.
func TestLeaseIsAskedForAtEachGate(t *testing.T) {
	r := newRig(t)
	run, _ := r.open()
	if err := run.takeLease(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.world.lease = "somebody else"
	if err := run.takeLease(t.Context()); problem.StatusOf(err) != problem.Locked {
		t.Errorf("got %v", err)
	}
}

// TestLeaseThatEndedMeanwhile is of a command that was stopped for longer than its lease, in the middle of a
// gate: what it would do next on a host is not done when somebody else has the lease by then, and done when
// nobody has. A step that is in work while the lease is lost is ended.
func TestLeaseThatEndedMeanwhile(t *testing.T) {
	for name, c := range map[string]struct {
		lose func(run *Runner, w *world)
		want problem.Status
	}{
		"somebody took it": {func(run *Runner, w *world) { run.lease.until, w.lease = time.Now().Add(-time.Second), "op2" }, problem.Locked},
		"nobody took it":   {func(run *Runner, w *world) { run.lease.until = time.Now().Add(-time.Second) }, problem.Success},
		"somebody had it":  {func(run *Runner, w *world) { run.lease.until, w.lease = time.Now().Add(-time.Second), "" }, problem.Locked},
		"the clock leapt":  {func(run *Runner, w *world) { run.lease.until, w.lease = time.Now().Round(0).Add(-time.Second), "op2" }, problem.Locked},
		"lost while in work": {func(run *Runner, w *world) {
			run.lose(run.lease, leaseHeld("h1", "1800000000\nop2\n", true))
		}, problem.Locked},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			run, end := r.open()
			defer end()
			r.world.after["put"] = func() { c.lose(run, r.world) }
			out, err := run.Run(t.Context(), Options{})
			if out.Status != c.want || problem.StatusOf(err) != c.want {
				t.Fatalf("got %v, %v", out.Status, err)
			}
			if launched := slices.Contains(r.world.took(), "launch"); launched != (c.want == problem.Success) {
				t.Errorf("launched: %v", launched)
			}
			interrupted := r.kinds(record.KindInterrupted)
			if c.want == problem.Locked && (len(interrupted) != 1 || len(r.kinds(record.KindVerdict)) != 1 || !strings.Contains(err.Error(), "op2") && !strings.Contains(err.Error(), "had it since")) {
				t.Errorf("interrupted %v, %v", interrupted, err)
			}
		})
	}
}

// TestLeaseTakenOverIsRecorded says whose lease it was and when it ended.
func TestLeaseTakenOverIsRecorded(t *testing.T) {
	r := newRig(t)
	r.world.expired = "op2@other \x1b[31mpid 7"
	r.pass(Options{})
	snap, err := record.Read(r.dir)
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(snap.Events, func(ev record.Event) bool { return ev.Kind == record.KindNote })
	if at < 0 {
		t.Fatal("nothing says that it was taken over")
	}
	n, err := record.Body[record.Note](snap.Events[at])
	if err != nil || !strings.HasPrefix(n.Values["from"], "op2@other") || strings.Contains(n.Values["from"], "\x1b") || n.Values["expired"] != "2027-01-15T08:00:00Z" || snap.Events[at].Host != "h1" {
		t.Errorf("%+v, %v", n, err)
	}
	r.verify()
}

// leaseHost counts renewals and answers what the test says.
type leaseHost struct {
	Host
	mu      sync.Mutex
	renewed int
	err     error
}

func (h *leaseHost) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.renewed
}

func (h *leaseHost) answer(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.err = err
}

func (h *leaseHost) Run(_ context.Context, c remote.Command) (remote.Result, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if nameOf(c) == "lease" {
		h.renewed++
		return remote.Result{Stdout: []byte("1800000000\nother\n")}, h.err
	}
	return remote.Result{}, nil
}
func (h *leaseHost) Close() error { return nil }

func TestLeaseIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &leaseHost{}
		run := &Runner{Fleet: testFleet(), Holder: "op", Connect: func(context.Context, string) (Host, error) { return h, nil }}
		run.Fleet.Deploy.Limits.LockTTL = fleet.Duration(30 * time.Second)
		if err := run.takeLease(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute + time.Second)
		if n := h.count(); n != 7 {
			t.Errorf("renewed %d times in a minute with a lease of 30 s, want 1 and 6", n)
		}
		h.answer(errors.New("no connection")) // not a reason to give up
		time.Sleep(30 * time.Second)
		h.answer(&remote.ExitError{Code: exitHeld})
		time.Sleep(10 * time.Second)
		n := h.count()
		time.Sleep(time.Minute)
		if h.count() != n {
			t.Error("a lost lease is asked for in the background")
		}
		h.answer(nil)
		if err := run.takeLease(t.Context()); problem.StatusOf(err) != problem.Locked {
			t.Errorf("after it was lost: %v", err)
		}
		if err := run.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestLeaseScript runs the real script in a real shell.
func TestLeaseScript(t *testing.T) {
	for _, shell := range []string{"dash", "bash", "sh"} {
		if _, err := exec.LookPath(shell); err != nil {
			continue
		}
		t.Run(shell, func(t *testing.T) {
			root := filepath.Join(t.TempDir(), "it's a root")
			sh := func(script string) (string, int) {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				cmd := exec.CommandContext(ctx, shell, "-c", script)
				var out bytes.Buffer
				cmd.Stdout = &out
				err := cmd.Run()
				var exit *exec.ExitError
				if err != nil && !errors.As(err, &exit) {
					t.Fatal(err)
				}
				return out.String(), cmd.ProcessState.ExitCode()
			}
			ask := func(holder string, ttl, own int) (string, int) {
				return sh(fmt.Sprintf(leaseScript, remote.Quote(root), remote.Quote(holder), ttl, remote.Quote(holder+" of $HOME"), exitHeld, own))
			}
			take := func(holder string, ttl int) (string, int) { return ask(holder, ttl, 0) }
			release := func(holder string) { sh(fmt.Sprintf(releaseScript, remote.Quote(root), remote.Quote(holder))) }

			if out, code := take("a", 60); code != 0 {
				t.Fatalf("first: exit %d, %q", code, out)
			}
			if out, code := ask("a", 60, 1); code != 0 || out != "" {
				t.Errorf("renewing: exit %d, %q", code, out)
			}
			out, code := take("b", 60)
			expires, who, _ := strings.Cut(out, "\n")
			if code != exitHeld || strings.TrimSpace(who) != "a of $HOME" || len(expires) < 10 {
				t.Errorf("another: exit %d, %q", code, out)
			}
			release("b")
			if _, code := take("b", 60); code != exitHeld {
				t.Errorf("after somebody else's release: exit %d", code)
			}
			if _, code := take("a", -5); code != 0 {
				t.Errorf("expiring: exit %d", code)
			}
			if _, code := ask("b", 60, 1); code != exitHeld {
				t.Errorf("renewing what another had: exit %d", code)
			}
			if out, code := take("b", 60); code != 0 || !regexp.MustCompile(`^taken\n[0-9]{10}\na of \$HOME\n$`).MatchString(out) {
				t.Errorf("after it expired: exit %d, %q", code, out)
			}
			if _, code := take("a", 60); code != exitHeld {
				t.Errorf("the former holder: exit %d", code)
			}
			release("b")
			if out, code := ask("a", 60, 1); code != exitHeld || out != "0\n\n" {
				t.Errorf("renewing after another gave it back: exit %d, %q", code, out)
			}
			if _, code := take("a", 60); code != 0 {
				t.Errorf("after its release: exit %d", code)
			}
			if err := os.WriteFile(filepath.Join(root, "lease"), []byte("garbage"), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, code := take("b", 60); code != 0 {
				t.Errorf("over garbage: exit %d", code)
			}
			release("b")
			if left, _ := filepath.Glob(filepath.Join(root, "*")); len(left) != 0 {
				t.Errorf("left behind %v", left)
			}
			if left, _ := filepath.Glob(filepath.Join(root, ".lease*")); len(left) != 0 {
				t.Errorf("left behind %v", left)
			}
		})
	}
}
