package process

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// manager is a systemctl of one unit. It fails on what is not scripted, starts the unit by Become as
// a leader of a session, and starts nothing again.
const manager = `#!/bin/sh
d=$(dirname "$0")
[ "$1 $2 $3" = "--user --no-pager --no-ask-password" ] || { echo "unscripted: $*" >&2; exit 64; }
shift 3
echo "$*" >>"$d/asked"
state() { p=$(cat "$d/pid" 2>/dev/null || echo 0); if [ "$p" != 0 ] && kill -0 "$p" 2>/dev/null; then echo active; else p=0; echo inactive; fi; }
case "$1" in
daemon-reload) ;;
reset-failed|enable|disable) ;;
start) rm -f "$d/pid"; if [ -e "$d/broken" ]; then echo "Job failed" >&2; exit 1; fi
  setsid sh -c 'echo $$ >"$1/pid"; shift; exec "$@"' sh "$d" "$BECOME" ` + asChild + ` "$RUN" "$UNITS/e.json" >/dev/null 2>&1 &
  until [ -s "$d/pid" ]; do sleep 0.01; done;;
stop) p=$(cat "$d/pid" 2>/dev/null || echo 0); if [ "$p" != 0 ]; then kill -TERM "$p" 2>/dev/null; fi; exit 0;;
kill) [ "$2" = --signal=KILL ] || exit 64; kill -KILL "$(cat "$d/pid")";;
show) s=$(state); [ "$s" = inactive ] && p=0 || p=$(cat "$d/pid"); echo "MainPID=$p"; echo "ActiveState=$s"; echo "SubState=x"; echo "Result=exit-code"; echo "ExecMainStatus=7";;
*) echo "unscripted: $*" >&2; exit 64;;
esac
`

// unitHost is a folder of records and one of units, with the manager on the path.
func unitHost(t *testing.T, script string) (dir, bin string, s Spec) {
	t.Helper()
	dir, bin = t.TempDir(), t.TempDir()
	units := t.TempDir()
	for name, text := range map[string]string{filepath.Join(bin, "systemctl"): manager, filepath.Join(units, "narwhal-e.service"): "[Service]\n"} {
		if err := os.WriteFile(name, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	t.Setenv("XDG_CONFIG_HOME", filepath.Join(bin, "config"))
	t.Setenv("BECOME", become(t)[0])
	t.Setenv("RUN", dir)
	t.Setenv("UNITS", units)
	sum := sha256.Sum256([]byte("[Service]\n"))
	s = Spec{Name: "e", Launch: "l1", Argv: []string{"sh", "-c", script}, Unit: &Unit{Name: "narwhal-e.service", File: filepath.Join(units, "narwhal-e.service"), SHA256: hex.EncodeToString(sum[:]), User: true, Boot: true}}
	t.Cleanup(func() {
		if r, ok := Read(dir, "e"); ok && r.Remains() {
			_ = syscall.Kill(-r.PID, syscall.SIGKILL)
		}
	})
	return dir, bin, s
}

func asked(t *testing.T, bin string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(bin, "asked"))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func installed(bin string) bool {
	_, err := os.Stat(filepath.Join(bin, "config", "systemd", "user", "narwhal-e.service"))
	return err == nil
}

func TestUnitStartsAndStops(t *testing.T) {
	dir, bin, s := unitHost(t, forever)
	r, adopted, err := Start(limited(t), dir, s, nil)
	if err != nil || adopted || !r.Alive() || r.Unit == nil || r.Launch != "l1" {
		t.Fatalf("started %+v, adopted %v, %v", r, adopted, err)
	}
	if !installed(bin) || !strings.Contains(asked(t, bin), "enable narwhal-e.service\nstart narwhal-e.service\n") {
		t.Errorf("asked %s", asked(t, bin))
	}
	if st, err := os.Stat(filepath.Join(dir, "e.log")); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("the log: %v, %v", st, err)
	}
	if again, adopted, err := Start(limited(t), dir, s, nil); err != nil || !adopted || again.Identity != r.Identity {
		t.Errorf("a second start: adopted %v, %v", adopted, err)
	}
	out, err := Stop(limited(t), dir, "e", 10*time.Second)
	if err != nil || !out.Was || out.Killed || r.Remains() {
		t.Fatalf("stopped %+v, %v", out, err)
	}
	if installed(bin) || !strings.Contains(asked(t, bin), "disable narwhal-e.service\n") {
		t.Errorf("the unit is left; asked %s", asked(t, bin))
	}
	if _, ok := Read(dir, "e"); ok {
		t.Error("the record is left")
	}
}

func TestUnitThatDoesNotEndIsKilled(t *testing.T) {
	dir, _, s := unitHost(t, `trap '' TERM; : >"$0/ready"; while :; do sleep 0.05; done`)
	ready := fifo(t, dir)
	s.Argv = append(s.Argv, dir)
	r, _, err := Start(limited(t), dir, s, nil)
	if err != nil {
		t.Fatal(err)
	}
	wait(t, ready)
	if out, err := Stop(limited(t), dir, "e", 200*time.Millisecond); err != nil || !out.Was || !out.Killed || r.Alive() {
		t.Errorf("stopped %+v, %v", out, err)
	}
}

func TestUnitRefused(t *testing.T) {
	t.Run("another content", func(t *testing.T) {
		dir, bin, s := unitHost(t, forever)
		if err := os.WriteFile(s.Unit.File, []byte("[Service]\nUser=root\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err := Start(limited(t), dir, s, nil); err == nil || !strings.Contains(err.Error(), "was changed") || installed(bin) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("a name that leaves its folder", func(t *testing.T) {
		dir, _, s := unitHost(t, forever)
		s.Unit.Name = "../x.service"
		if _, _, err := Start(limited(t), dir, s, nil); err == nil || !strings.Contains(err.Error(), "not usable") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("a unit of another root", func(t *testing.T) {
		dir, bin, s := unitHost(t, forever)
		other := filepath.Join(bin, "config", "systemd", "user", "narwhal-e.service")
		if err := os.MkdirAll(filepath.Dir(other), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(other, []byte("[Service]\nExecStart=/elsewhere\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err := Start(limited(t), dir, s, nil); err == nil || !strings.Contains(err.Error(), "give this fleet another name") || !installed(bin) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("the manager does not start it", func(t *testing.T) {
		dir, bin, s := unitHost(t, forever)
		if err := os.WriteFile(filepath.Join(bin, "broken"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err := Start(limited(t), dir, s, nil); err == nil || !strings.Contains(err.Error(), "Job failed") || installed(bin) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("it ends at once", func(t *testing.T) {
		dir, bin, s := unitHost(t, "exit 7")
		s.Argv = []string{"no-such-program-anywhere"}
		if _, _, err := Start(limited(t), dir, s, nil); err == nil || !strings.Contains(err.Error(), "ended at once: result exit-code, status 7") || installed(bin) {
			t.Errorf("got %v", err)
		}
	})
}

// TestUnitIsReplaced: what a unit ran gives way to a process of narwhal's own, also when the
// process is dead and the manager might start another.
func TestUnitIsReplaced(t *testing.T) {
	dir, bin, s := unitHost(t, forever)
	r, _, err := Start(limited(t), dir, s, nil)
	if err != nil {
		t.Fatal(err)
	}
	own := Spec{Name: "e", Launch: "l2", Argv: []string{"sh", "-c", forever}}
	if _, _, err := Start(limited(t), dir, own, become(t)); err == nil {
		t.Fatal("two processes run under one name")
	}
	if err := syscall.Kill(-r.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if !gone(limited(t), r.Identity, 10*time.Second) {
		t.Fatal("it survived KILL")
	}
	now, _, err := Start(limited(t), dir, own, become(t))
	if err != nil || now.Unit != nil || installed(bin) {
		t.Errorf("started %+v, %v", now, err)
	}
}

// TestUnitStartsAgain: what the manager starts after the first process is the command for that,
// and what a gate starts is the first one.
func TestUnitStartsAgain(t *testing.T) {
	dir, bin, s := unitHost(t, forever)
	s.Again = []string{"sh", "-c", "sleep 600; exit"}
	start := func() Record {
		t.Helper()
		r, adopted, err := Start(limited(t), dir, s, nil)
		if err != nil || adopted || r.Argv[2] != forever {
			t.Fatalf("started %v, adopted %v, %v", r.Argv, adopted, err)
		}
		return r
	}
	kill := func(r Record) {
		t.Helper()
		if _ = syscall.Kill(-r.PID, syscall.SIGKILL); !gone(limited(t), r.Identity, 10*time.Second) {
			t.Fatal("it survived KILL")
		}
	}
	kill(start())
	kill(start()) // by a gate, with the record of the dead one there
	if _, err := s.Unit.systemctl(limited(t), "start", s.Unit.Name); err != nil {
		t.Fatal(err)
	}
	until := time.Now().Add(10 * time.Second)
	for {
		r, ok := Read(dir, "e")
		if ok && r.Alive() {
			if r.Argv[2] != s.Again[2] || r.Launch != s.Launch {
				t.Errorf("started %v of launch %s", r.Argv, r.Launch)
			}
			break
		}
		if time.Now().After(until) {
			t.Fatalf("nothing came back; asked %s", asked(t, bin))
		}
		runtime.Gosched()
	}
}
