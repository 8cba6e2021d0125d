package install

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/internal/process"
)

func viewOf(holder string) gates.View {
	return gates.View{Fleet: testFleet(), Run: "run of " + holder, Holder: holder}
}

// lockText is a lock as its script writes it.
func lockText(holder, until, boot, pid, ticks string) string {
	return strings.Join([]string{holder, "run-2", until, boot, pid, ticks, "other", "192.0.2.9", ""}, "\n")
}

func TestLock(t *testing.T) {
	me, err := process.Self()
	if err != nil {
		t.Skip("no identity of processes here: ", err)
	}
	pid, ticks, later := fmt.Sprint(me.PID), fmt.Sprint(me.StartTicks), "2000000000"
	gone := exec.Command("true")
	must(t, gone.Run())
	for _, shell := range shells(t) {
		for name, c := range map[string]struct{ before, state, why string }{
			"free":                        {"", "taken", ""},
			"our own":                     {lockText("me", later, me.BootID, pid, ticks), "again", ""},
			"a live owner":                {lockText("o", later, me.BootID, pid, ticks), "held", ""},
			"an owner of another boot":    {lockText("o", later, "11111111-2222", pid, ticks), "over", "the host was started anew"},
			"a process that is gone":      {lockText("o", later, me.BootID, fmt.Sprint(gone.ProcessState.Pid()), "1"), "over", "its connection has ended"},
			"its id was given to another": {lockText("o", later, me.BootID, pid, "1"), "over", "its connection has ended"},
			"its time is over":            {lockText("o", "1000", me.BootID, pid, ticks), "over", "its time is over"},
			"an owner without a process":  {lockText("o", later, "-", "-", "-"), "held", ""},
			"garbage":                     {"\x00\x1b[31m;rm -rf /\n$(id)\n", "over", "its time is over"},
			"empty":                       {"\n", "over", "its time is over"},
			"a process id with a path":    {lockText("o", later, me.BootID, "../1", ticks), "held", ""},
		} {
			root := filepath.Join(t.TempDir(), "it's")
			file := filepath.Join(root, lockName)
			if c.before != "" {
				mkdir(t, root, 0o755)
				must(t, os.WriteFile(file, []byte(c.before), 0o600))
			}
			got := run(t, shell, lockProbe(root, viewOf("me")), "SSH_CONNECTION=192.0.2.1 1 192.0.2.2 22")
			a, whole := readAnswer([]byte(got))
			if !whole || a.one("state") != c.state || a.one("why") != c.why {
				t.Errorf("%v, %s: got %s", shell, name, got)
			}
			b, err := os.ReadFile(file)
			must(t, err)
			if mine := strings.HasPrefix(string(b), "me\nrun of me\n") && strings.HasSuffix(string(b), "tern\n192.0.2.1\n"); mine != (c.state != "held") {
				t.Errorf("%v, %s: lock %q", shell, name, b)
			}
			if left, _ := filepath.Glob(filepath.Join(root, ".install*")); len(left) > 0 {
				t.Errorf("%v, %s: left %v", shell, name, left)
			}
			want := map[string]string{"held": "install-locked", "over": "install-lock-taken-over noted"}[c.state]
			if found := lockFaults([]byte(got)); codes(found) != want {
				t.Errorf("%v, %s: found %q", shell, name, codes(found))
			} else if c.state == "held" && c.before == lockText("o", later, me.BootID, pid, ticks) {
				for _, part := range []string{"run-2", "192.0.2.9", pid, ticks, me.BootID} {
					if !strings.Contains(found[0].Message, part) {
						t.Errorf("%v: the owner's %s is not named in %s", shell, part, found[0].Message)
					}
				}
			}
			if halts := (Gate{}).Halts(lockKey("h"), []byte(got)) != ""; halts != (c.state == "held") {
				t.Errorf("%v, %s: halts %v", shell, name, halts)
			}
			run(t, shell, unlockProbe(root, viewOf("me")))
			if _, err := os.Stat(file); (err == nil) != (c.state == "held") {
				t.Errorf("%v, %s: after giving back: %v", shell, name, err)
			}
		}
	}
}

// TestLockAfterAKilledShell breaks the turn of a shell that was killed with its lock half
// written, and leaves nothing of it.
func TestLockAfterAKilledShell(t *testing.T) {
	fast := t.TempDir()
	must(t, os.WriteFile(filepath.Join(fast, "sleep"), []byte("#!/bin/sh\n"), 0o755))
	for _, shell := range shells(t) {
		root := t.TempDir()
		mkdir(t, filepath.Join(root, ".install.turn"), 0o755)
		must(t, os.WriteFile(filepath.Join(root, ".install.turn", "17"), []byte("me\nrun"), 0o600))
		got := run(t, shell, lockProbe(root, viewOf("me")), "PATH="+fast+":"+os.Getenv("PATH"))
		if a, whole := readAnswer([]byte(got)); !whole || a.one("state") != "taken" {
			t.Errorf("%v: got %s", shell, got)
		}
		if left, _ := filepath.Glob(filepath.Join(root, ".install*")); len(left) > 0 {
			t.Errorf("%v: left %v", shell, left)
		}
	}
}

// TestLockIsOfOne: of many that come at once, to a free root or to one of a dead owner, one
// gets it.
func TestLockIsOfOne(t *testing.T) {
	for name, before := range map[string]string{"free": "", "of a dead owner": lockText("old", "1000", "-", "-", "-")} {
		root := t.TempDir()
		if before != "" {
			must(t, os.WriteFile(filepath.Join(root, lockName), []byte(before), 0o600))
		}
		var wg sync.WaitGroup
		var mu sync.Mutex
		got := map[string]int{}
		for i := range 12 {
			wg.Go(func() {
				out, err := exec.Command("sh", "-c", lockProbe(root, viewOf(fmt.Sprint("holder ", i)))).Output()
				a, _ := readAnswer(out)
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
				got[a.one("state")]++
			})
		}
		wg.Wait()
		if got["taken"]+got["over"] != 1 || got["held"] != 11 {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestSwitchUnderAnothersLock refuses to switch a root that was taken over.
func TestSwitchUnderAnothersLock(t *testing.T) {
	me := self(t)
	dir := root(t, me)
	q := SwitchRequest{Root: dir, Release: me, Holder: "me"}
	if _, err := doSwitch(t.Context(), q); err == nil {
		t.Error("switched without the lock")
	}
	must(t, os.WriteFile(filepath.Join(dir, lockName), []byte(lockText("other", "1", "-", "-", "-")), 0o600))
	if _, err := doSwitch(t.Context(), q); err == nil || gates.CurrentRelease(dir) != "none" {
		t.Errorf("switched under another's lock: %v", err)
	}
	must(t, os.WriteFile(filepath.Join(dir, lockName), []byte(lockText("me", "1", "-", "-", "-")), 0o600))
	if _, err := doSwitch(t.Context(), q); err != nil {
		t.Error(err)
	}
}
