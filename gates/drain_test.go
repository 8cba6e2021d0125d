package gates

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/internal/process"
)

// startAt runs a shell script under a name below a root.
func startAt(t *testing.T, root, name, script string) Launched {
	t.Helper()
	t.Cleanup(func() { _, _ = process.Stop(context.Background(), filepath.Join(root, DirRun), name, 0) })
	ready := filepath.Join(root, name+".up")
	l, err := ask[Launched](t, "launch", LaunchRequest{Root: root, Spec: process.Spec{Name: name, Argv: []string{"sh", "-c", script + `; : >"` + ready + `"; while :; do sleep 0.02; done`}, Launch: "l-" + name}})
	if err != nil {
		t.Fatal(err)
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(20 * time.Second); ; <-tick.C {
		if _, err := os.Stat(ready); err == nil {
			return l
		}
		if time.Now().After(end) {
			t.Fatal("the script does not start")
		}
	}
}

// TestDrain ends a process in order, counts what its journal says was cut, and watches the
// one that takes over.
func TestDrain(t *testing.T) {
	row := func(reason string) string { return `printf '{"reason":"` + reason + `"}\n' >>"$j"` }
	for _, c := range []struct {
		what, script string
		within       time.Duration
		keep         []string
		killed, kept bool
		cut          int // -1 = unknown
	}{
		{what: "nothing was open", script: `trap 'exit 0' TERM`, within: 10 * time.Second, cut: 0},
		{what: "two were cut", script: "trap '" + strings.Join([]string{row("completed"), row("shutdown"), row("shutdown")}, ";") + ";exit 0' TERM", within: 10 * time.Second, cut: 2},
		{what: "the journal moved on", script: "trap '" + row("shutdown") + `; mv "$j" "$j.1"; ` + row("shutdown") + ";exit 0' TERM", within: 10 * time.Second, cut: 2},
		{what: "it does not end", script: `trap '' TERM`, within: 50 * time.Millisecond, killed: true, cut: -1},
		{what: "the journal is gone", script: `trap 'rm "$j"; exit 0' TERM`, within: 10 * time.Second, cut: -1},
		{what: "it may stay", script: `trap 'exit 0' TERM`, within: 10 * time.Second, keep: []string{"other", "l-router"}, kept: true, cut: -1},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			j := filepath.Join(root, JournalOf("router"))
			if err := os.MkdirAll(filepath.Dir(j), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(j, []byte(`{"reason":"shutdown"}`+"\n"), 0o600); err != nil { // of an earlier end
				t.Fatal(err)
			}
			l := startAt(t, root, "router", fmt.Sprintf("j='%s'; %s", j, quoted(c.script)))
			d, err := ask[Drained](t, "drain", DrainRequest{Root: root, Name: "router", Within: fleet.Duration(c.within), Journal: JournalOf("router"), Keep: c.keep})
			if err != nil {
				t.Fatal(err)
			}
			cut := -1
			if d.Cut != nil {
				cut = *d.Cut
			}
			if !d.Was || d.ID != l.ID || d.Killed != c.killed || d.Kept != c.kept || cut != c.cut || d.Succeeded != nil {
				t.Errorf("%+v, cut %d", d, cut)
			}
			if _, runs := process.Of(l.PID); runs != c.kept {
				t.Errorf("it runs: %v", runs)
			}
		})
	}
}

// quoted keeps a trap's own quotes within single ones: the scripts hold none beside them.
func quoted(script string) string {
	head, rest, ok := strings.Cut(script, "'")
	if !ok {
		return script
	}
	body, tail := rest[:strings.LastIndex(rest, "'")], rest[strings.LastIndex(rest, "'")+1:]
	return head + "'" + strings.ReplaceAll(body, "'", `'\''`) + "'" + tail
}

func TestDrainWatchesTheSuccessor(t *testing.T) {
	for _, ready := range []bool{true, false} {
		root := t.TempDir()
		l := startAt(t, root, "router", `trap 'exit 0' TERM`)
		next := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			id, _ := process.Of(l.PID)
			if !ready || id.PID != 0 {
				w.WriteHeader(http.StatusServiceUnavailable)
				fmt.Fprint(w, `{"reason":"shadowing\u001b[2J"}`)
				return
			}
			fmt.Fprint(w, `{"epoch":2,"holder":"h2/standby:x","reason":""}`)
		}))
		within := 20 * time.Second
		if !ready {
			within = 100 * time.Millisecond
		}
		d, err := ask[Drained](t, "drain", DrainRequest{Root: root, Name: "router", Within: fleet.Duration(10 * time.Second), Journal: JournalOf("router"), Successor: next.URL + "/", SucceedWithin: fleet.Duration(within)})
		next.Close()
		if err != nil || d.Succeeded == nil || d.Succeeded.Ready != ready || d.Succeeded.GapMS < 0 {
			t.Fatalf("%+v, %v", d, err)
		}
		if s := d.Succeeded; ready && (s.Epoch != 2 || s.Holder != "h2/standby:x" || s.Reason != "") || !ready && s.Reason != "shadowing[2J" {
			t.Errorf("%+v", s)
		}
	}
}

func TestDrainOfNothing(t *testing.T) {
	d, err := ask[Drained](t, "drain", DrainRequest{Root: t.TempDir(), Name: "router", Within: second, Journal: JournalOf("router")})
	if err != nil || d.Was || d.ID != "" || d.Cut != nil {
		t.Errorf("%+v, %v", d, err)
	}
	if _, err := ask[Drained](t, "drain", DrainRequest{Root: t.TempDir(), Name: "router", Within: second, Journal: "../journal"}); err == nil || !strings.Contains(err.Error(), "no path below the root") {
		t.Errorf("a journal elsewhere: %v", err)
	}
}
