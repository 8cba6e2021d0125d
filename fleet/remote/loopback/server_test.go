package loopback

import (
	"bytes"
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pkg/sftp"
	"golang.org/x/crypto/ssh"
)

func start(t *testing.T, cfg Config) (*Server, *ssh.Client) {
	t.Helper()
	key, err := GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	cfg.Root, cfg.Authorized = t.TempDir(), []string{key.Public + " a comment"}
	s, err := Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := s.KillAll(ctx); err != nil {
			t.Error(err)
		}
		_ = s.Close()
	})
	signer, err := ssh.ParsePrivateKey(key.Private)
	if err != nil {
		t.Fatal(err)
	}
	line, _ := s.HostKey()
	pinned, _, _, _, _ := ssh.ParseAuthorizedKey([]byte(line))
	c, err := ssh.Dial("tcp", s.Addr(), &ssh.ClientConfig{User: "x", Auth: []ssh.AuthMethod{ssh.PublicKeys(signer)}, HostKeyCallback: ssh.FixedHostKey(pinned)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return s, c
}

func output(t *testing.T, c *ssh.Client, command string) string {
	t.Helper()
	s, err := c.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	out, err := s.Output(command)
	if err != nil {
		t.Fatalf("%s: %v", command, err)
	}
	return string(out)
}

func until(t *testing.T, ok func() bool) {
	t.Helper()
	for start := time.Now(); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Since(start) > 10*time.Second {
			t.Fatal("not within 10 s")
		}
	}
}

func TestEnvironmentIsClean(t *testing.T) {
	t.Setenv("LEAKED", "from the test")
	s, c := start(t, Config{Env: []string{"EXTRA=1"}, Mark: "m"})
	env := output(t, c, "env | sort; pwd")
	for _, want := range []string{"EXTRA=1\n", "HOME=" + s.Root() + "\n", "LANG=C\n", "NARWHAL_LOOPBACK=m\n", "PATH=/", "LOGNAME=" + login() + "\n"} {
		if !strings.Contains(env, want) {
			t.Errorf("%q is missing in\n%s", want, env)
		}
	}
	if strings.Contains(env, "LEAKED") || !strings.HasSuffix(env, "\n"+s.Root()+"\n") {
		t.Errorf("environment and folder:\n%s", env)
	}
}

func TestClosedChannelClosesStdinAndKillsNothing(t *testing.T) {
	s, c := start(t, Config{})
	session, err := c.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	stdin, _ := session.StdinPipe()
	if err := session.Start("echo $$ >pid; cat >/dev/null; echo eof >eof; exec sleep 100 >/dev/null 2>&1"); err != nil {
		t.Fatal(err)
	}
	until(t, func() bool { return len(s.Processes()) == 1 })
	_ = stdin
	_ = c.Close()
	until(t, func() bool { _, err := os.Stat(filepath.Join(s.Root(), "eof")); return err == nil })
	if p := s.Processes(); len(p) != 1 {
		t.Errorf("processes after the loss: %v", p)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := s.KillAll(ctx); err != nil || len(s.Processes()) > 0 {
		t.Errorf("%v %v", err, s.Processes())
	}
}

func TestKillAllFindsWhatMovedAndIgnoresTerm(t *testing.T) {
	s, c := start(t, Config{})
	output(t, c, `setsid sh -c 'trap "" TERM; echo ready >ready; while :; do sleep 1; done' </dev/null >/dev/null 2>&1 & while [ ! -s ready ]; do sleep 0.01; done`)
	if len(s.Processes()) == 0 {
		t.Fatal("the process is not known")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	if err := s.KillAll(ctx); err == nil {
		t.Error("a process that ignores TERM is gone before KILL")
	}
	ctx, cancel = context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := s.KillAll(ctx); err != nil {
		t.Error(err)
	}
}

func TestASecondServerFindsProcessesByMark(t *testing.T) {
	s, c := start(t, Config{Mark: "kept-" + t.Name()})
	output(t, c, "setsid sleep 100 </dev/null >/dev/null 2>&1 &")
	until(t, func() bool { return len(s.Processes()) == 1 })
	other, _ := start(t, Config{Mark: "kept-" + t.Name()})
	stranger, _ := start(t, Config{})
	if len(other.Processes()) != 1 || len(stranger.Processes()) != 0 {
		t.Errorf("%v %v", other.Processes(), stranger.Processes())
	}
}

func TestExitSignal(t *testing.T) {
	_, c := start(t, Config{})
	session, _ := c.NewSession()
	err := session.Run("kill -KILL $$")
	exit, ok := err.(*ssh.ExitError)
	if !ok || exit.Signal() != "KILL" || exit.ExitStatus() != 137 {
		t.Errorf("%v", err)
	}
}

func TestRefusals(t *testing.T) {
	s, c := start(t, Config{MaxSessions: 1})
	session, err := c.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	if session.Setenv("A", "1") == nil || session.RequestPty("xterm", 1, 1, nil) == nil || session.RequestSubsystem("other") == nil {
		t.Error("environment, pty or an unknown subsystem is taken")
	}
	if _, err := c.NewSession(); err == nil {
		t.Error("a second session is taken")
	}
	if _, err := c.Dial("tcp", "192.0.2.1:80"); err == nil {
		t.Error("forwarded beyond loopback")
	}
	for _, cfg := range []Config{{Root: filepath.Join(s.Root(), "none")}, {Root: s.Root(), Listen: "0.0.0.0:0"}, {Root: s.Root(), Listen: "x"},
		{Root: s.Root(), Authorized: []string{"nonsense"}}, {Root: s.Root(), HostKey: []byte("nonsense")}} {
		if bad, err := Start(cfg); err == nil {
			_ = bad.Close()
			t.Errorf("started with %+v", cfg)
		}
	}
	anyone := &ssh.ClientConfig{User: "x", Auth: []ssh.AuthMethod{ssh.Password("")}, HostKeyCallback: ssh.InsecureIgnoreHostKey()}
	if _, err := ssh.Dial("tcp", s.Addr(), anyone); err == nil {
		t.Error("let in without a key")
	}
}

func TestFiles(t *testing.T) {
	s, c := start(t, Config{})
	client, err := sftp.NewClient(c)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if err := client.Mkdir("d"); err != nil {
		t.Fatal(err)
	}
	f, err := client.Create("d/a")
	if err != nil {
		t.Fatal(err)
	}
	data := bytes.Repeat([]byte("x"), 100_000)
	if _, err := f.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := f.Chmod(0o640); err != nil {
		t.Fatal(err)
	}
	_ = f.Close()
	path := filepath.Join(s.Root(), "d", "a")
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, data) {
		t.Fatal(len(got), err)
	}
	if info, _ := client.Stat(path); info.Mode() != 0o640 || info.Size() != 100_000 {
		t.Errorf("%v %d", info.Mode(), info.Size())
	}
	if err := client.Symlink("a", "d/link"); err != nil {
		t.Error(err)
	}
	if to, err := client.ReadLink("d/link"); err != nil || to != "a" {
		t.Error(to, err)
	}
	if info, err := client.Lstat("d/link"); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Error(info, err)
	}
	if list, err := client.ReadDir("d"); err != nil || len(list) != 2 {
		t.Error(list, err)
	}
	if err := client.Rename("d/a", "d/link"); err == nil {
		t.Error("a plain rename replaces")
	}
	if err := client.PosixRename("d/a", "d/link"); err != nil {
		t.Error(err)
	}
	if err := client.RemoveAll("d"); err != nil {
		t.Error(err)
	}
	if vfs, err := client.StatVFS(s.Root()); err != nil || vfs.Bavail == 0 {
		t.Error(vfs, err)
	}
	s.FillAfter(10)
	g, _ := client.Create("full")
	if _, err := g.Write(data); err == nil {
		t.Error("no space is left, and it was written")
	}
}

func TestCloseLeavesNoListener(t *testing.T) {
	s, _ := start(t, Config{})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error("closing twice:", err)
	}
	if _, err := net.Dial("tcp", s.Addr()); err == nil {
		t.Error("a closed server listens")
	}
}
