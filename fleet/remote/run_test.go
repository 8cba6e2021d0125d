package remote

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/fleet/remote/loopback"
)

func TestRunCodesAndStreams(t *testing.T) {
	s, h := one(t, Options{})
	for _, c := range []struct {
		name           string
		command        Command
		code           int
		stdout, stderr string
	}{
		{"argv", Command{Argv: []string{"printf", "%s|", "a b", "", "$HOME", "it's", `"\`}}, 0, `a b||$HOME|it's|"\|`, ""},
		{"script", Command{Script: "echo out; echo err >&2; exit 7"}, 7, "out\n", "err\n"},
		{"home", Command{Script: `cd; pwd; echo "$HOME"`}, 0, s.Root() + "\n" + s.Root() + "\n", ""},
		{"env", Command{Script: `printf %s "$A"`, Env: map[string]string{"A": "x 'y'\n$z"}}, 0, "x 'y'\n$z", ""},
		{"path", Command{Argv: []string{"/bin/sh", "-c", "echo $PATH"}, Env: map[string]string{"PATH": "/none"}}, 0, "/none\n", ""},
		{"stdin", Command{Argv: []string{"cat"}, Stdin: []byte("one\ntwo\x00\xff")}, 0, "one\ntwo\x00\xff", ""},
		{"no stdin", Command{Argv: []string{"cat"}}, 0, "", ""},
		{"signal", Command{Script: "kill -KILL $$"}, 137, "", ""},
		{"term", Command{Script: "kill -TERM $$"}, 143, "", ""},
		{"assignment", Command{Argv: []string{"env", "A=1", "sh", "-c", "echo $A"}}, 0, "1\n", ""},
		{"secret", Command{Script: `printf %s "$S" | wc -c`, SecretEnv: map[string]fleet.Secret{"S": hidden(` back\slash and 'quote' `)}}, 0, "24\n", ""},
		{"secret and stdin", Command{Script: `printf %s "${#S}:"; cat`, Stdin: []byte("in"), SecretEnv: map[string]fleet.Secret{"S": hidden("four"), "Z": hidden("")}}, 0, "4:in", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			res, err := h.Run(limited(t), c.command)
			if string(res.Stdout) != c.stdout || string(res.Stderr) != c.stderr || res.Code != c.code {
				t.Errorf("got %d %q %q, want %d %q %q", res.Code, res.Stdout, res.Stderr, c.code, c.stdout, c.stderr)
			}
			var exit *ExitError
			if (err == nil) != (c.code == 0) || (err != nil && (!errors.As(err, &exit) || exit.Code != c.code)) {
				t.Errorf("err = %v", err)
			}
		})
	}
	if res, err := h.Run(limited(t), Command{Argv: []string{"/no/such/command"}}); res.Code != 127 || err == nil {
		t.Errorf("missing command: %d %v", res.Code, err)
	}
}

func TestRunRefusesWhatCannotBeSent(t *testing.T) {
	_, h := one(t, Options{Policy: func(Operation) error { t.Error("asked the policy"); return nil }})
	for name, c := range map[string]Command{
		"empty":          {},
		"both":           {Argv: []string{"a"}, Script: "b"},
		"nul":            {Argv: []string{"a\x00b"}},
		"variable":       {Argv: []string{"a"}, Env: map[string]string{"A-B": ""}},
		"reserved":       {Argv: []string{"a"}, Env: map[string]string{"narwhal_p": ""}},
		"read-only":      {Argv: []string{"a"}, Env: map[string]string{"UID": "1"}},
		"secret newline": {Argv: []string{"a"}, SecretEnv: map[string]fleet.Secret{"A": hidden("top\nsecret")}},
		"twice":          {Argv: []string{"a"}, Env: map[string]string{"A": ""}, SecretEnv: map[string]fleet.Secret{"A": hidden("x")}},
	} {
		_, err := h.Run(limited(t), c)
		var refused *CommandError
		if !errors.As(err, &refused) || strings.Contains(err.Error(), "secret\n") || strings.Contains(err.Error(), "top") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestRunRefusesLongLine(t *testing.T) {
	_, h := one(t, Options{})
	_, err := h.Run(limited(t), Command{Argv: []string{"true", strings.Repeat("x", maxLine)}})
	var refused *CommandError
	if !errors.As(err, &refused) {
		t.Fatal(err)
	}
}

// alive reports whether a process exists and is no zombie.
func alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return !errors.Is(err, os.ErrNotExist)
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(rest, "Z")
}

// stubborn is a command whose process group ignores TERM; it writes its pids to a file.
const stubborn = `trap '' TERM; sh -c 'trap "" TERM; echo $$ >child; while :; do sleep 1; done' & echo $$ >parent; wait; while :; do sleep 1; done`

func pids(t *testing.T, dir string) []int {
	t.Helper()
	var out []int
	for _, name := range []string{"parent", "child"} {
		eventually(t, "pid of "+name, func() bool {
			text, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil || !bytes.HasSuffix(text, []byte("\n")) {
				return false
			}
			n, err := strconv.Atoi(strings.TrimSpace(string(text)))
			out = append(out, n)
			return err == nil
		})
	}
	return out
}

func TestCancelKillsTheGroup(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"stubborn": stubborn,
		"obedient": `sh -c 'echo $$ >child; exec sleep 100' & echo $$ >parent; wait`,
		// The leader goes at TERM, its child does not.
		"mixed": `sh -c 'trap "" TERM; echo $$ >child; while :; do sleep 1; done' & echo $$ >parent; wait`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, h := one(t, Options{})
			ctx, cancel := context.WithCancelCause(limited(t))
			why := errors.New("the operator says stop")
			done := make(chan error, 1)
			go func() { _, err := h.Run(ctx, Command{Script: script}); done <- err }()
			group := pids(t, s.Root())
			cancel(why)
			if err := <-done; !errors.Is(err, why) {
				t.Errorf("err = %v", err)
			}
			for _, pid := range group {
				ended(t, pid)
			}
			eventually(t, "no process left", func() bool { return len(s.Processes()) == 0 })
			if _, err := h.Run(limited(t), Command{Argv: []string{"true"}}); err != nil {
				t.Errorf("host after a cancel: %v", err)
			}
		})
	}
}

func TestLimit(t *testing.T) {
	t.Parallel()
	s, h := one(t, Options{})
	start := time.Now()
	res, err := h.Run(limited(t), Command{Script: "echo begun; echo $$ >parent; exec sleep 100", Limit: 300 * time.Millisecond})
	var limit *LimitError
	if !errors.As(err, &limit) || limit.Limit != 300*time.Millisecond || string(res.Stdout) != "begun\n" {
		t.Fatalf("%v %q", err, res.Stdout)
	}
	if took := time.Since(start); took > 3*time.Second {
		t.Errorf("an obedient command took %s to end", took)
	}
	eventually(t, "no process left", func() bool { return len(s.Processes()) == 0 })
}

func TestLostConnection(t *testing.T) {
	t.Parallel()
	s, h := one(t, Options{})
	done := make(chan error, 1)
	go func() { _, err := h.Run(limited(t), Command{Script: stubborn}); done <- err }()
	group := pids(t, s.Root())
	s.Drop()
	err := <-done
	var lost *LostError
	var exit *ExitError
	if !errors.As(err, &lost) || errors.As(err, &exit) || lost.Host != "alpha" {
		t.Fatalf("err = %v", err)
	}
	for _, pid := range group {
		ended(t, pid)
	}
	if _, err := h.Run(limited(t), Command{Argv: []string{"true"}}); !errors.As(err, &lost) {
		t.Errorf("run after the loss: %v", err)
	}
}

func TestSilentConnection(t *testing.T) {
	t.Parallel()
	key, path := userKey(t)
	s := serve(t, loopback.Config{Authorized: []string{key.Public}})
	h := connect(t, Options{KeepaliveInterval: 50 * time.Millisecond}, hopTo(s, "alpha", path))
	s.Mute(true)
	t.Cleanup(func() { s.Mute(false) })
	select {
	case <-h.Lost():
	case <-time.After(5 * time.Second):
		t.Fatal("a silent server was not noticed")
	}
	var lost *LostError
	if !errors.As(h.Err(), &lost) {
		t.Error(h.Err())
	}
}

func TestKeepaliveKeepsABusyAndAnIdleConnection(t *testing.T) {
	t.Parallel()
	key, path := userKey(t)
	s := serve(t, loopback.Config{Authorized: []string{key.Public}})
	h := connect(t, Options{KeepaliveInterval: 300 * time.Millisecond}, hopTo(s, "alpha", path))
	if _, err := h.Run(limited(t), Command{Argv: []string{"sleep", "1.5"}}); err != nil {
		t.Fatal(err)
	}
}

func TestStayLeavesProcesses(t *testing.T) {
	s, h := one(t, Options{})
	script := `setsid sh -c 'echo $$ >own; exec sleep 60' </dev/null >log 2>&1 &
sh -c 'echo $$ >group; exec sleep 60' </dev/null >log 2>&1 &
while [ ! -s own ] || [ ! -s group ]; do sleep 0.01; done`
	if _, err := h.Run(limited(t), Command{Script: script, Stay: true}); err != nil {
		t.Fatal(err)
	}
	_ = h.Close()
	for _, name := range []string{"own", "group"} {
		text, _ := os.ReadFile(filepath.Join(s.Root(), name))
		if pid, _ := strconv.Atoi(strings.TrimSpace(string(text))); pid == 0 || !alive(pid) {
			t.Errorf("%s: process %q is gone", name, text)
		}
	}
	if len(s.Processes()) == 0 {
		t.Error("the server does not know what stayed")
	}
}

func TestWithoutStayNothingIsLeft(t *testing.T) {
	s, h := one(t, Options{})
	res, err := h.Run(limited(t), Command{Script: "sleep 60 & echo started"})
	if err != nil || string(res.Stdout) != "started\n" {
		t.Fatalf("%v %q", err, res.Stdout)
	}
	eventually(t, "no process left", func() bool { return len(s.Processes()) == 0 })
}

func TestOutputIsBounded(t *testing.T) {
	_, h := one(t, Options{})
	res, err := h.Run(limited(t), Command{Script: "head -c 3000000 /dev/zero; echo e >&2; exit 3", MaxOutput: 1000})
	var exit *ExitError
	if !errors.As(err, &exit) || exit.Code != 3 || len(res.Stdout) != 1000 || !res.Truncated || string(res.Stderr) != "e\n" {
		t.Fatalf("%v %d bytes, truncated %v, %q", err, len(res.Stdout), res.Truncated, res.Stderr)
	}
	res, err = h.Run(limited(t), Command{Script: "head -c 1000 /dev/zero", MaxOutput: 1000})
	if err != nil || res.Truncated || len(res.Stdout) != 1000 {
		t.Errorf("exact fit: %v %d %v", err, len(res.Stdout), res.Truncated)
	}
}

func TestSecretIsNowhereButInTheEnvironment(t *testing.T) {
	s, h := one(t, Options{})
	const value = "hunter2-é-$(id)'\\"
	var seen []Operation
	h.opts.Trace = func(op Operation, _ Outcome) { seen = append(seen, op) }
	script := `printf %s "$TOKEN" >got; for f in /proc/[0-9]*/cmdline; do tr '\0' ' ' <"$f" 2>/dev/null; echo; done; echo "$TOKEN"; echo "$TOKEN" >&2; exit 1`
	res, err := h.Run(limited(t), Command{Script: script, SecretEnv: map[string]fleet.Secret{"TOKEN": hidden(value)}})
	got, _ := os.ReadFile(filepath.Join(s.Root(), "got"))
	if string(got) != value {
		t.Errorf("the command got %q", got)
	}
	all := string(res.Stdout) + string(res.Stderr) + err.Error() + h.opsText(seen)
	if strings.Contains(all, value) || strings.Contains(all, "hunter2") {
		t.Errorf("the secret shows: %s", all)
	}
	if !bytes.Contains(res.Stdout, []byte("narwhal_w")) {
		t.Errorf("the command lines were not looked at: %q", res.Stdout)
	}
	if !strings.Contains(err.Error(), secretMask) {
		t.Errorf("err = %v", err)
	}
}

func (h *Host) opsText(ops []Operation) string {
	var b strings.Builder
	for _, op := range ops {
		b.WriteString(strings.Join(op.Argv, " ") + op.Script + strings.Join(op.SecretNames, " "))
	}
	return b.String()
}

func TestSessionsAreCapped(t *testing.T) {
	_, h := one(t, Options{})
	var wg sync.WaitGroup
	errs := make(chan error, 40)
	for range 40 {
		wg.Go(func() {
			_, err := h.Run(limited(t), Command{Script: "sleep 0.05"})
			errs <- err
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			t.Error(err)
		}
	}
}

func TestRefusedSessionIsTyped(t *testing.T) {
	t.Parallel()
	key, path := userKey(t)
	s := serve(t, loopback.Config{Authorized: []string{key.Public}, MaxSessions: 1})
	h := connect(t, Options{}, hopTo(s, "alpha", path))
	ctx, cancel := context.WithCancel(limited(t))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = h.Run(ctx, Command{Script: "echo $$ >parent; echo $$ >child; exec sleep 60"})
	}()
	pids(t, s.Root())
	_, err := h.Run(limited(t), Command{Argv: []string{"true"}})
	var hop *HopError
	if !errors.As(err, &hop) || hop.Stage != StageChannel || Hint(err) == "" {
		t.Errorf("err = %v", err)
	}
	cancel()
	<-done
	if _, err := h.Run(limited(t), Command{Argv: []string{"true"}}); err != nil {
		t.Errorf("after the first has ended: %v", err)
	}
}

func TestSessionIsOpenedAgainWhenTheServerIsFull(t *testing.T) {
	t.Parallel()
	key, path := userKey(t)
	s := serve(t, loopback.Config{Authorized: []string{key.Public}, MaxSessions: 1})
	h := connect(t, Options{}, hopTo(s, "alpha", path))
	done := make(chan error, 1)
	go func() {
		_, err := h.Run(limited(t), Command{Script: "echo $$ >parent; echo $$ >child; sleep 0.2"})
		done <- err
	}()
	pids(t, s.Root())
	if _, err := h.Run(limited(t), Command{Argv: []string{"true"}}); err != nil {
		t.Error(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestPolicyComesFirst(t *testing.T) {
	no := errors.New("not in the plan")
	var asked []Kind
	s, h := one(t, Options{Policy: func(op Operation) error { asked = append(asked, op.Kind); return no }})
	ctx := limited(t)
	_, e1 := h.Run(ctx, Command{Script: "touch done"})
	_, e2 := h.Put(ctx, fileOf(s.Root()+"/done", []byte("x")))
	_, e3 := h.Get(ctx, "/etc/passwd", 10)
	_, e4 := h.Dial(ctx, "tcp", s.Addr())
	_, e5 := h.Tunnel(ctx, "127.0.0.1:0", s.Addr())
	for i, err := range []error{e1, e2, e3, e4, e5} {
		var refused *PolicyError
		if !errors.As(err, &refused) || !errors.Is(err, no) {
			t.Errorf("%d: %v", i, err)
		}
	}
	if len(asked) != 5 {
		t.Errorf("asked for %v", asked)
	}
	if entries, _ := os.ReadDir(s.Root()); len(entries) > 0 {
		t.Errorf("refused operations left %v", entries)
	}
}
