package gates

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/internal/process"
)

// TestMain lets the test binary be the installed one where a verb starts a process.
func TestMain(m *testing.M) {
	if len(os.Args) == 5 && os.Args[1] == "host" && os.Args[2] == "become" {
		fmt.Fprintln(os.Stderr, process.Become(os.Args[3], os.Args[4]))
		os.Exit(4)
	}
	os.Exit(m.Run())
}

// ask sends a request to a verb as the host's shell would.
func ask[A any](t *testing.T, name string, request any) (A, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var a A
	answer, err := ProcessVerbs()[name](ctx, mustJSON(request))
	if err != nil {
		return a, err
	}
	if err := json.Unmarshal(mustJSON(answer), &a); err != nil {
		t.Fatal(err)
	}
	return a, nil
}

func TestProcessVerbs(t *testing.T) {
	root := t.TempDir()
	spec := process.Spec{Name: "engine-e", Argv: []string{"sleep", "600"}, Launch: "l1"}
	status := StatusRequest{Root: root, Name: "engine-e", Launch: "l1"}
	if _, err := ask[Launched](t, "status", status); !errors.Is(err, ErrUndone) {
		t.Errorf("status of nothing: %v", err)
	}
	if _, err := ask[struct{}](t, "absent", status); err != nil {
		t.Errorf("absent of nothing: %v", err)
	}
	t.Cleanup(func() { _, _ = process.Stop(context.Background(), filepath.Join(root, DirRun), "engine-e", 0) })

	first, err := ask[Launched](t, "launch", LaunchRequest{Root: root, Spec: spec})
	if err != nil || first.PID == 0 || first.Launch != "l1" || first.Name != "engine-e" {
		t.Fatalf("launch: %+v, %v", first, err)
	}
	again, err := ask[Launched](t, "launch", LaunchRequest{Root: root, Spec: spec})
	if err != nil || again.ID != first.ID {
		t.Errorf("launching again: %+v, %v; want it adopted", again, err)
	}
	seen, err := ask[Launched](t, "status", status)
	if err != nil || seen != first {
		t.Errorf("status: %+v, %v", seen, err)
	}
	if _, err := ask[struct{}](t, "absent", status); !errors.Is(err, ErrUndone) {
		t.Errorf("absent of what runs: %v", err)
	}
	facts, err := ask[Seen](t, "observe", Looking{Root: root, Procs: []string{"engine-e", "router"}})
	for k, v := range first.ProcessFacts() {
		if facts.Facts[k] != v {
			t.Errorf("observed %s = %q, launched %q (%v)", k, facts.Facts[k], v, err)
		}
	}

	other := spec
	other.Launch = "l2"
	if _, err := ask[Launched](t, "launch", LaunchRequest{Root: root, Spec: other}); !errors.Is(err, process.ErrOther) {
		t.Errorf("another launch without replace: %v", err)
	}
	second, err := ask[Launched](t, "launch", LaunchRequest{Root: root, Spec: other, Replace: fleet.Duration(5 * time.Second)})
	if err != nil || second.ID == first.ID || second.Launch != "l2" {
		t.Fatalf("replacing: %+v, %v", second, err)
	}
	if _, ok := process.Of(first.PID); ok && first.PID != second.PID {
		t.Error("the replaced process still runs")
	}
	if _, err := ask[Launched](t, "status", status); !errors.Is(err, ErrUndone) {
		t.Errorf("status of the replaced launch: %v", err)
	}
	stopped, err := ask[process.Stopped](t, "stop", StopRequest{Root: root, Name: "engine-e", Within: fleet.Duration(5 * time.Second)})
	if err != nil || !stopped.Was || stopped.PID != second.PID {
		t.Errorf("stop: %+v, %v", stopped, err)
	}
	stopped, err = ask[process.Stopped](t, "stop", StopRequest{Root: root, Name: "engine-e", Within: fleet.Duration(time.Second)})
	if err != nil || stopped.Was {
		t.Errorf("stopping again: %+v, %v", stopped, err)
	}
}

func TestVerbRefusesWhatItCannotRead(t *testing.T) {
	for name, v := range ProcessVerbs() {
		if _, err := v(t.Context(), json.RawMessage(`{"root":`)); err == nil || !strings.HasPrefix(err.Error(), "read request") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestLaunchStep(t *testing.T) {
	f := testFleet()
	s := LaunchStep(f, "X/launch", "h1", process.Spec{Name: "engine-e", Argv: []string{"x"}, Launch: "l"}, fleet.Duration(7*time.Second))
	if err := (Plan{Gate: "X", Steps: []Step{s}}).validate(); err != nil {
		t.Error(err)
	}
	for what, argv := range map[string][]string{"launch": s.Argv, "status": s.Check, "stop": s.Undo.Argv} {
		if len(argv) != 4 || argv[0] != "/opt/n/current/narwhal" || argv[1] != "host" || argv[2] != what || !json.Valid([]byte(argv[3])) {
			t.Errorf("%s: %q", what, argv)
		}
	}
	if s.Undo.Limit.D() <= 7*time.Second || s.Undo.Stops != "engine-e" {
		t.Errorf("undo %+v", s.Undo)
	}
}

func TestLook(t *testing.T) {
	root := t.TempDir()
	s, err := Look(Looking{Root: root})
	if err != nil {
		t.Fatal(err)
	}
	for k, want := range map[string]string{"release": "none", "files": "none", "files-dir": "none", "key": "none", "boot": process.BootID()} {
		if s.Facts[k] != want {
			t.Errorf("of an empty root: %s = %q, want %q", k, s.Facts[k], want)
		}
	}
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	file := write("model.bin", "weights")
	write("etc/host.json", "{}")
	write(SidecarKey, "public")
	if err := os.Symlink("releases/abc", filepath.Join(root, LinkCurrent)); err != nil {
		t.Fatal(err)
	}
	look := func() map[string]string {
		t.Helper()
		s, err := Look(Looking{Root: root, Files: []string{file, file + ".none"}, Peers: map[string]string{"h2": "127.0.0.1", "h3": "fe80::1%nosuchif"}})
		if err != nil {
			t.Fatal(err)
		}
		return s.Facts
	}
	a := look()
	if a["release"] != "abc" || a["route/h3"] != "unknown" || !strings.Contains(a["route/h2"], " 127.0.0.1 mtu ") {
		t.Errorf("facts %v", a)
	}
	before := []string{a["files"], a["files-dir"], a["key"]}
	write("etc/sidecar.key", "private") // no role file
	if b := look(); b["files-dir"] != before[1] {
		t.Error("a private key counts as a role file")
	}
	write("etc/host.json", `{"x":1}`)
	write(SidecarKey, "other")
	write("model.bin", "other weights")
	b := look()
	for i, k := range []string{"files", "files-dir", "key"} {
		if b[k] == before[i] {
			t.Errorf("a change of %s goes unnoticed", k)
		}
	}
}

// TestFilesFact tells what gate A's probe tells: links by their target, no folders.
func TestFilesFact(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	link := filepath.Join(dir, "link")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	before := FilesFact([]string{link})
	if err := os.WriteFile(file, []byte("longer"), 0o600); err != nil {
		t.Fatal(err)
	}
	if FilesFact([]string{link}) == before {
		t.Error("a change behind a link goes unnoticed")
	}
	if FilesFact([]string{dir}) != FilesDigest([]string{dir + " absent"}) {
		t.Error("a folder counts as a file")
	}
	if FilesFact(nil) != "none" || FilesFact([]string{file, link}) != FilesFact([]string{link, file}) {
		t.Error("the order of the files counts, or none is something")
	}
}

func TestFactsOf(t *testing.T) {
	f := twoHosts()
	l := looking(f, "h1")
	if l.Root != "/opt/n" || l.Peers["h2"] != "192.0.2.12" || len(l.Peers) != 1 || fmt.Sprint(l.Procs) != "[engine-p0 sidecar-p0 router]" {
		t.Errorf("looking at h1: %+v", l)
	}
	facts, err := factsOf("h1", l, []byte(`{"facts":{"boot":"b","route/h2":"eth1 x","proc/engine-p0/id":"1","proc/engine-d0/id":"not its own","proc/engine-p0/launch":"l"}}`))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"host/h1/boot": "b", "host/h1/route/h2": "eth1 x", "proc/engine-p0/id": "1", "proc/engine-p0/launch": "l",
		"proc/sidecar-p0/id": Gone, "proc/sidecar-p0/launch": Gone, "proc/router/id": Gone, "proc/router/launch": Gone, "proc/router/serves": Idle}
	if fmt.Sprint(facts) != fmt.Sprint(want) {
		t.Errorf("got  %v\nwant %v", facts, want)
	}
	for _, bad := range []string{"", "null x", "null", "{}", `{"facts":[]}`, `{"facts":{"release":"none"}}`, "\xff"} {
		if _, err := factsOf("h1", l, []byte(bad)); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}

func FuzzFactsOf(f *testing.F) {
	f.Add([]byte(`{"facts":{"boot":"b","proc/router/id":"x"}}`))
	f.Add([]byte(`{"facts":null}`))
	l := looking(twoHosts(), "h1")
	f.Fuzz(func(t *testing.T, b []byte) {
		facts, err := factsOf("h1", l, b)
		if err != nil {
			return
		}
		for k := range facts {
			if !strings.HasPrefix(k, "host/h1/") && !strings.HasPrefix(k, "proc/engine-p0/") && !strings.HasPrefix(k, "proc/sidecar-p0/") && !strings.HasPrefix(k, "proc/router/") {
				t.Errorf("host h1 speaks of %s", k)
			}
		}
	})
}
