package gates

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/internal/process"
)

// TestUnowned looks for owners on a host with real processes and listeners.
func TestUnowned(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	busy := l.Addr().String()
	for _, c := range []struct {
		what   string
		before func(t *testing.T, root string)
		listen []string
		why    string
	}{
		{"nothing", func(*testing.T, string) {}, []string{"127.0.0.1:0"}, ""},
		{"no address", func(*testing.T, string) {}, nil, ""},
		{"an address of another machine", func(*testing.T, string) {}, []string{"192.0.2.1:9"}, ""},
		{"a listener without a record", func(*testing.T, string) {}, []string{"127.0.0.1:0", busy}, unownedAddress + busy},
		{"a record cut short", func(t *testing.T, root string) { leave(t, root, `{"name":"rou`) }, []string{"127.0.0.1:0"}, unownedRecord},
		{"an empty record", func(t *testing.T, root string) { leave(t, root, "") }, nil, unownedRecord},
		{"another's record", func(t *testing.T, root string) { leave(t, root, `{"name":"engine-e","pid":7}`) }, nil, unownedRecord},
		{"the record of what has ended, and a listener", func(t *testing.T, root string) {
			leave(t, root, `{"name":"router","pid":2147480000,"boot_id":"b"}`)
		}, []string{busy}, unownedAddress + busy},
		{"what runs holds its address", func(t *testing.T, root string) { startAt(t, root, "router", ":") }, []string{busy}, ""},
	} {
		t.Run(c.what, func(t *testing.T) {
			root := t.TempDir()
			c.before(t, root)
			seen, err := ask[Seen](t, "observe", Looking{Root: root, Listen: map[string][]string{"router": c.listen}})
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			for _, u := range seen.Unowned {
				got += u.Why
			}
			if got != c.why {
				t.Errorf("got %q, want %q", got, c.why)
			}
		})
	}
}

// leave puts bytes where the router's record lies.
func leave(t *testing.T, root, text string) {
	t.Helper()
	dir := filepath.Join(root, DirRun)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "router.json"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestLaunchesOfEarlierRuns: what another run of the same fleet launched is known.
func TestLaunchesOfEarlierRuns(t *testing.T) {
	runs := t.TempDir()
	launched := func(dir, launch string) {
		r, err := record.Create(dir, record.Header{Run: "r", FleetName: "tern", Fleet: []byte("{}")}, record.Options{})
		if err != nil {
			t.Fatal(err)
		}
		s := LaunchStep(testFleet(), "C/launch", "h1", process.Spec{Name: "engine-e", Launch: launch}, second)
		if _, err := r.Append(record.KindIntent, "C", s.ID, "h1", intentOf(s)); err != nil {
			t.Fatal(err)
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
	launched(filepath.Join(runs, "1"), "launch-one")
	launched(filepath.Join(runs, "2"), "launch-two")
	l := &launches{dir: filepath.Join(runs, "2")}
	for launch, want := range map[string]bool{"launch-two": true, "launch-one": true, "launch-three": false} {
		if got := l.know(launch); got != want {
			t.Errorf("%s is known: %v", launch, got)
		}
	}
}
