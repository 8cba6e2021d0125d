package remote

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
)

// shells returns a PATH for each installed shell in which sh is that shell.
func shells(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, name := range []string{"dash", "bash", "busybox", "mksh", "ksh", "zsh", "yash"} {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		dir := t.TempDir()
		if err := os.Symlink(path, filepath.Join(dir, "sh")); err != nil {
			t.Fatal(err)
		}
		out[name] = dir
	}
	if len(out) == 0 {
		t.Skip("none of the known shells is installed")
	}
	return out
}

// local runs a command's line as a server would, with sh found in dir.
func local(t *testing.T, dir, work string, c Command) (cmd *exec.Cmd, stdin io.WriteCloser, out, errs *bytes.Buffer) {
	t.Helper()
	out, errs = &bytes.Buffer{}, &bytes.Buffer{}
	cmd = exec.Command(filepath.Join(dir, "sh"), "-c", c.line())
	cmd.Env = []string{"PATH=" + dir + ":/usr/bin:/bin", "TMPDIR=" + work}
	cmd.Dir = work
	cmd.Stdout, cmd.Stderr = out, errs
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := stdin.Write(c.head()); err != nil {
		t.Fatal(err)
	}
	return cmd, stdin, out, errs
}

func TestWrapperInEveryShell(t *testing.T) {
	for name, dir := range shells(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			work := t.TempDir()
			c := Command{
				Script: `printf '%s|%s|' "$A" "$S"; cat; echo err >&2; exit 9`, Stdin: []byte("in\nput"), Limit: time.Hour,
				Env: map[string]string{"A": "a 'b'\n"}, SecretEnv: map[string]fleet.Secret{"S": hidden(` s\e `)},
			}
			cmd, _, out, errs := local(t, dir, work, c)
			_ = cmd.Wait()
			if cmd.ProcessState.ExitCode() != 9 || out.String() != "a 'b'\n| s\\e |in\nput" || errs.String() != "err\n" {
				t.Errorf("%v %q %q", cmd.ProcessState, out, errs)
			}
			if left := names(t, work); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
			// TERM leaves time to clean up before KILL.
			cmd, stdin, out, errs := local(t, dir, work, Command{Script: `trap 'sleep 0.4; echo cleaned; exit 5' TERM; echo $$ >parent; echo $$ >child; while :; do sleep 0.05; done`})
			_ = pids(t, work)
			_ = stdin.Close()
			_ = cmd.Wait()
			if cmd.ProcessState.ExitCode() != 5 || out.String() != "cleaned\n" {
				t.Errorf("%v %q %q", cmd.ProcessState, out, errs)
			}
			// So it does to a member of the group that outlives the leader.
			work = t.TempDir()
			cmd, stdin, _, _ = local(t, dir, work, Command{Script: `sh -c 'trap "sleep 0.4; echo x >cleaned; exit" TERM; echo $$ >child; while :; do sleep 0.05; done' & echo $$ >parent; wait`})
			_ = pids(t, work)
			_ = stdin.Close()
			_ = cmd.Wait()
			if _, err := os.Stat(filepath.Join(work, "cleaned")); err != nil || cmd.ProcessState.ExitCode() != 143 {
				t.Errorf("%v %v", cmd.ProcessState, err)
			}
			work = t.TempDir()
			cmd, stdin, _, errs = local(t, dir, work, Command{Script: stubborn})
			group := pids(t, work)
			_ = stdin.Close()
			_ = cmd.Wait()
			for _, pid := range group {
				ended(t, pid)
			}
			if cmd.ProcessState.ExitCode() != 137 || errs.Len() > 0 {
				t.Errorf("%v %q", cmd.ProcessState, errs)
			}
		})
	}
}

func TestInputThatDoesNotArriveRunsNothing(t *testing.T) {
	for name, dir := range shells(t) {
		work := t.TempDir()
		c := Command{Script: "touch ran", Stdin: []byte("0123456789")}
		line := c.line()
		cmd := exec.Command(filepath.Join(dir, "sh"), "-c", line)
		cmd.Env = []string{"PATH=" + dir + ":/usr/bin:/bin", "TMPDIR=" + work}
		cmd.Dir, cmd.Stdin = work, strings.NewReader("01234")
		out, _ := cmd.CombinedOutput()
		if cmd.ProcessState.ExitCode() != 125 || !strings.Contains(string(out), "narwhal: input") || len(names(t, work)) > 0 {
			t.Errorf("%s: %v %q %v", name, cmd.ProcessState, out, names(t, work))
		}
		c = Command{Script: "touch ran", SecretEnv: map[string]fleet.Secret{"S": hidden("x")}}
		cmd = exec.Command(filepath.Join(dir, "sh"), "-c", c.line())
		cmd.Env = []string{"PATH=" + dir + ":/usr/bin:/bin"}
		cmd.Dir, cmd.Stdin = work, strings.NewReader("half a secret")
		out, _ = cmd.CombinedOutput()
		if cmd.ProcessState.ExitCode() != 125 || len(names(t, work)) > 0 {
			t.Errorf("%s: %v %q %v", name, cmd.ProcessState, out, names(t, work))
		}
	}
}

// The host's own limit ends a command although nobody closes standard input.
func TestHostLimitInEveryShell(t *testing.T) {
	for name, dir := range shells(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			work := t.TempDir()
			c := Command{Argv: []string{"sleep", "100"}, Limit: time.Nanosecond}
			line := strings.Replace(c.line(), " 6 -- sleep", " 1 -- sleep", 1)
			cmd := exec.Command(filepath.Join(dir, "sh"), "-c", line)
			cmd.Env = []string{"PATH=" + dir + ":/usr/bin:/bin"}
			cmd.Dir = work
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			defer w.Close()
			cmd.Stdin = r
			if err := cmd.Run(); cmd.ProcessState.ExitCode() != 143 {
				t.Errorf("%v %v", err, cmd.ProcessState)
			}
		})
	}
}
