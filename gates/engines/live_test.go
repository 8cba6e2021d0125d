package engines

import (
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/internal/process"
	"github.com/narwhal-fleet/narwhal/runtime/engine/simulated"
)

// deaf is an engine that takes connections and never answers.
func deaf(t *testing.T) string {
	t.Helper()
	over := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-over:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(func() { close(over); s.Close() })
	return s.URL
}

// running records a process that lives until the test ends or end is called.
func running(t *testing.T, log string) (root string, end func()) {
	t.Helper()
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	end = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	t.Cleanup(end)
	id, ok := process.Of(cmd.Process.Pid)
	if !ok {
		t.Fatal("it does not run")
	}
	root = recorded(t, func(r *process.Record) { r.Identity = id })
	path := filepath.Join(root, gates.DirRun, "engine-e.log")
	if err := os.WriteFile(path, []byte(log), 0o600); err != nil {
		t.Fatal(err)
	}
	return root, end
}

func hour(root, url string) LiveRequest {
	return LiveRequest{Root: root, Name: "engine-e", URL: url, Model: "tiny", Within: fleet.Duration(time.Hour)}
}

// TestLiveReadsTheLog names the cause within seconds although the process runs on, and
// although the time limit is far away.
func TestLiveReadsTheLog(t *testing.T) {
	root, _ := running(t, "loading weights\n(EngineCore_DP0 pid=754) ERROR 01-12 17:11:19 [core.py:936] RuntimeError: NIXL is not available\n")
	begin := time.Now()
	got, err := live(limited(t), hour(root, deaf(t)))
	if err != nil || got.Ready || got.Cause == nil || got.Cause.Code != "transfer-missing" || got.Cause.Number != 2 || !strings.Contains(got.Reason, "its log tells why") {
		t.Fatalf("got %+v (%+v), %v", got, got.Cause, err)
	}
	if took := time.Since(begin); took > settle+5*time.Second {
		t.Errorf("it took %s", took)
	}
}

// TestLiveNoticesADeath ends the process while the engine is asked and does not answer.
func TestLiveNoticesADeath(t *testing.T) {
	root, end := running(t, "Permission denied\n")
	asked := make(chan struct{}, 8)
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		<-r.Context().Done()
	}))
	defer s.Close()
	go func() {
		<-asked
		end()
	}()
	begin := time.Now()
	got, err := live(limited(t), hour(root, s.URL))
	if err != nil || got.Ready || got.Reason != "the process has ended" || got.Cause == nil || got.Cause.Code != "permission" || got.Log != "Permission denied" {
		t.Fatalf("got %+v (%+v), %v", got, got.Cause, err)
	}
	if took := time.Since(begin); took > 3*time.Second {
		t.Errorf("it took %s", took)
	}
}

// TestLiveReadsThisLaunchOnly leaves out what an earlier process wrote to the same log.
func TestLiveReadsThisLaunchOnly(t *testing.T) {
	const before = "RuntimeError: NIXL is not available\n"
	self := func(r *process.Record) { r.LogFrom = int64(len(before)) }
	root := recorded(t, func(r *process.Record) { dead(r); self(r) })
	if err := os.WriteFile(filepath.Join(root, gates.DirRun, "engine-e.log"), []byte(before+"OSError: [Errno 98] Address already in use\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := live(limited(t), hour(root, deaf(t)))
	if err != nil || got.Cause == nil || got.Cause.Code != "port-in-use" || got.Cause.Number != 1 {
		t.Errorf("got %+v, %v", got.Cause, err)
	}
}

// TestLiveWithAPossibleCause waits for the process: a line that others survive decides nothing.
func TestLiveWithAPossibleCause(t *testing.T) {
	s := boot(t, nil)
	root := recorded(t, nil)
	log := "WARNING 10-03 20:16:19 _custom_ops.py:18] Failed to import from vllm._C with ImportError('libcuda.so.1: cannot open shared object file')\n"
	if err := os.WriteFile(filepath.Join(root, gates.DirRun, "engine-e.log"), []byte(log), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := live(limited(t), hour(root, s.URL())); err != nil || !got.Ready || got.Cause != nil {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestLogTail(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	put := func(flag int, s string) {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|flag, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString(s); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	l := logTail{path: path}
	l.read() // no log yet
	put(os.O_APPEND, "one\nCUDA out of")
	l.read()
	if f := l.reader.Found(); f != nil {
		t.Errorf("half a line tells %+v", f)
	}
	put(os.O_TRUNC, "")
	put(os.O_APPEND, "x\n")
	l.read() // it was cut and begins anew
	put(os.O_APPEND, "RuntimeError: CUDA out of memory\n")
	l.read()
	if f := l.reader.Found(); f == nil || f.Code != "gpu-memory" {
		t.Errorf("found %+v", f)
	}
	dir := logTail{path: t.TempDir()}
	dir.read()
	if dir.at != 0 {
		t.Error("a folder was read")
	}
	// A log that runs ahead is caught up with at its end.
	huge := logTail{path: path}
	if err := os.Truncate(path, 1<<40); err != nil {
		t.Skip(err)
	}
	put(os.O_APPEND, "\nOSError: [Errno 28] No space left on device\n")
	begin := time.Now()
	for range 3 {
		huge.read()
	}
	if f := huge.reader.Found(); f == nil || f.Code != "disk-full" || time.Since(begin) > 5*time.Second {
		t.Errorf("found %+v after %s", f, time.Since(begin))
	}
}

// TestListener proves this process's own socket and finds a stranger's.
func TestListener(t *testing.T) {
	if _, err := os.Stat("/proc/net/tcp"); err != nil {
		t.Skip("needs Linux")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := free.Addr().String()
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	ask := func(root string, listen ...string) Listener {
		t.Helper()
		got, err := listener(limited(t), ListenerRequest{Root: root, Name: "engine-e", Listen: listen})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	got := ask(recorded(t, nil), address, nobody)
	if !got.Known || len(got.Sockets) != 2 || got.Sockets[0].By != bySession || got.Sockets[0].PID != os.Getpid() || got.Sockets[0].Inode == 0 || got.Sockets[0].Program == "" {
		t.Errorf("our own: %+v", got)
	}
	if s := got.Sockets[1]; s.Inode != 0 || s.By != "" || s.Address != nobody {
		t.Errorf("nobody's: %+v", s)
	}
	root, _ := running(t, "")
	got = ask(root, strings.Replace(address, "127.0.0.1", "localhost", 1))
	if !got.Known || len(got.Sockets) != 1 || got.Sockets[0].By != "" || got.Sockets[0].PID != os.Getpid() {
		t.Errorf("a stranger's: %+v", got)
	}
	if got := ask(recorded(t, dead), address); got.Known || got.Why != "the process has ended" {
		t.Errorf("of a dead process: %+v", got)
	}
	for _, bad := range []string{"", "x", "127.0.0.1:99999999", "no.such.name.invalid:1"} {
		if _, err := listener(limited(t), ListenerRequest{Root: root, Name: "engine-e", Listen: []string{bad}}); err == nil {
			t.Errorf("%q is taken for an address", bad)
		}
	}
}

// scripted puts programs on the PATH that answer as written and fail otherwise.
func scripted(t *testing.T, programs map[string]string) {
	t.Helper()
	dir := t.TempDir()
	for name, body := range programs {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+body+"\necho \"not scripted: $*\" >&2; exit 97\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
}

// TestHostileRuntimes: whatever a runtime prints, nothing passes and nothing ends the binary.
func TestHostileRuntimes(t *testing.T) {
	id := strings.Repeat("a", 64)
	h := Holder{Runtime: "docker", Container: "narwhal-tern-p0"}
	for name, body := range map[string]string{
		"nothing":        `exit 0`,
		"a failure":      `echo "Error: unable" >&2; exit 125`,
		"two containers": `echo '[{"Id":"` + id + `"},{"Id":"` + id + `"}]'; exit 0`,
		"no container":   `echo '[]'; exit 0`,
		"an odd id":      `echo '[{"Id":"--force"}]'; exit 0`,
		"other types":    `echo '[{"Id":7,"State":"x"}]'; exit 0`,
		"no JSON":        `printf '\033[2J{'; exit 0`,
		"without an end": `exec yes`,
		"another tongue": `echo "Fehler: kein solcher Container"; exit 0`,
	} {
		scripted(t, map[string]string{"docker": body})
		if got, err := container(limited(t), ContainerRequest{Unit: h}); err == nil {
			t.Errorf("%s: container %+v", name, got)
		}
		if got, err := (Holder{Runtime: "docker", Container: "x"}).mainPID(limited(t)); err == nil {
			t.Errorf("%s: process %d", name, got)
		}
		if got := h.ended(limited(t)); got != "" {
			t.Errorf("%s: ended %q", name, got)
		}
		if got, err := away(limited(t), AwayRequest{Unit: h, Owner: "tern/engine-p0"}); name != "nothing" && err == nil {
			t.Errorf("%s: took away %+v", name, got)
		}
	}
}

// TestAwayUnit stops a unit that is ours by its description, and no other.
func TestAwayUnit(t *testing.T) {
	h := Holder{Unit: "vllm-p0.service", User: true}
	show := func(load, description string) string {
		return `case "$*" in "--user show --property LoadState,ActiveState,Description vllm-p0.service") printf 'LoadState=` + load + `\nActiveState=active\nDescription=` + description + `\n'; exit 0;;
"--user stop vllm-p0.service") echo stopped >"$MARK"; exit 0;; "--user reset-failed vllm-p0.service") exit 1;;
"--user show --property MainPID --value vllm-p0.service") echo 4711; exit 0;;
"--user show --property Result --value vllm-p0.service") echo oom-kill; exit 0;; esac`
	}
	mark := filepath.Join(t.TempDir(), "mark")
	t.Setenv("MARK", mark)
	for name, c := range map[string]struct {
		script  string
		removed string
		fails   bool
	}{
		"not there":       {show("not-found", ""), "", false},
		"somebody else's": {show("loaded", "a database"), "", true},
		"ours":            {show("loaded", "narwhal tern/engine-p0"), h.Unit, false},
		"no such systemd": {`echo "Failed to connect to bus" >&2; exit 1`, "", true},
	} {
		_ = os.Remove(mark)
		scripted(t, map[string]string{"systemctl": c.script})
		got, err := away(limited(t), AwayRequest{Unit: h, Owner: "tern/engine-p0"})
		_, stopped := os.Stat(mark)
		if got.Removed != c.removed || (err != nil) != c.fails || (stopped == nil) != (c.removed != "") {
			t.Errorf("%s: %+v, %v, stopped: %t", name, got, err, stopped == nil)
		}
	}
	scripted(t, map[string]string{"systemctl": show("loaded", "narwhal tern/engine-p0")})
	if pid, err := h.mainPID(limited(t)); pid != 4711 || err != nil {
		t.Errorf("process %d, %v", pid, err)
	}
	if got := h.ended(limited(t)); !strings.Contains(got, "oom-kill") {
		t.Errorf("ended %q", got)
	}
	if _, err := away(limited(t), AwayRequest{}); err == nil {
		t.Error("nothing was taken away")
	}
}

func FuzzContainer(f *testing.F) {
	f.Add([]byte(`[{"Id":"x","Image":"y","State":{"Pid":1},"Mounts":[{"Type":"bind","RW":true}]}]`))
	f.Fuzz(func(_ *testing.T, b []byte) {
		var all []inspected
		if json.Unmarshal(b, &all) == nil && len(all) == 1 {
			_ = imageID(all[0].Image)
		}
		_ = properties(string(b))
	})
}

// TestLiveSGLang asks in the dialect of the fleet.
func TestLiveSGLang(t *testing.T) {
	s := boot(t, func(c *simulated.Config) { c.Dialect, c.Role, c.SideChannel = "sglang", "prefill", "127.0.0.1:0" })
	q := hour(recorded(t, nil), s.URL())
	q.Dialect = "sglang"
	got, err := live(limited(t), q)
	if err != nil || !got.Ready || got.Version == "" || len(got.Models) != 1 {
		t.Errorf("got %+v, %v", got, err)
	}
	if l, err := cache(limited(t), CacheRequest{URL: s.URL(), Dialect: "sglang"}); err != nil || l.BlockSize < 1 {
		t.Errorf("layout %+v, %v", l, err)
	}
}

// TestLiveWithAKey sends the key that a variable holds; without it the engine refuses.
func TestLiveWithAKey(t *testing.T) {
	s := boot(t, func(c *simulated.Config) { c.APIKey = fleet.NewSecret("planted-77") })
	root := recorded(t, nil)
	t.Setenv("THE_ENGINE_KEY", "planted-77")
	q := hour(root, s.URL())
	q.Key = "THE_ENGINE_KEY"
	if got, err := live(limited(t), q); err != nil || !got.Ready {
		t.Errorf("with the key: %+v, %v", got, err)
	}
	q.Key, q.Within = "", fleet.Duration(200*time.Millisecond)
	got, err := live(limited(t), q)
	if err != nil || got.Ready || !strings.Contains(got.Reason, "401") || strings.Contains(got.Reason, "planted") {
		t.Errorf("without: %+v, %v", got, err)
	}
}

// TestLiveOfARank waits until the engine that it joins is healthy, and asks it nothing else.
func TestLiveOfARank(t *testing.T) {
	s := boot(t, nil)
	q := hour(recorded(t, nil), s.URL())
	q.Joins, q.Model = true, "whatever"
	if got, err := live(limited(t), q); err != nil || !got.Ready || len(got.ProbeTokens) != 0 {
		t.Errorf("got %+v, %v", got, err)
	}
	root, end := running(t, "torch.distributed.DistBackendError: NCCL error in: x\n")
	end()
	q = hour(root, deaf(t))
	q.Joins = true
	if got, err := live(limited(t), q); err != nil || got.Ready || got.Cause == nil || got.Cause.Code != "collective-failed" {
		t.Errorf("got %+v, %v", got, err)
	}
}

// TestLiveOfAContainerKilledForMemory asks the runtime where the log tells nothing.
func TestLiveOfAContainerKilledForMemory(t *testing.T) {
	scripted(t, map[string]string{"docker": `case "$*" in "container inspect --format {{.State.OOMKilled}} narwhal-tern-e") echo true; exit 0;; esac`})
	root, end := running(t, "loading weights\n")
	end()
	q := hour(root, deaf(t))
	q.Unit = Holder{Runtime: "docker", Container: "narwhal-tern-e"}
	got, err := live(limited(t), q)
	if err != nil || got.Ready || got.Cause == nil || got.Cause.Code != "host-memory" || !strings.Contains(got.Cause.Line, "OOMKilled") {
		t.Errorf("got %+v, %v", got, err)
	}
}
