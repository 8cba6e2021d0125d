package gates

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates/record"
)

func TestMatch(t *testing.T) {
	for _, c := range []struct {
		pattern string
		key     record.Key
		want    map[string]string // nil = no match
	}{
		{"A/host/{h}", "A/host/h1", map[string]string{"{h}": "h1"}},
		{"A/host/{h}", "A/host", nil},
		{"A/host/{h}", "A/host/h1/h2", nil},
		{"A/host/{h}", "B/host/h1", nil},
		{"D/pair/{a}/{b}", "D/pair/h1/h2", map[string]string{"{a}": "h1", "{b}": "h2"}},
		{"A/inputs", "A/inputs", map[string]string{}},
		{"A/host/{h}", record.NewKey("A", "host", `a/b "c" ü%`), map[string]string{"{h}": `a/b "c" ü%`}},
		{"A/host/{h}", "A/host/%zz", nil},
	} {
		got, ok := match(c.pattern, string(c.key))
		if ok != (c.want != nil) || ok && !maps.Equal(got, c.want) {
			t.Errorf("match(%s, %s) = %v, %v; want %v", c.pattern, c.key, got, ok, c.want)
		}
	}
}

// TestBondsOfStrangeNames binds evidence of an engine whose name is escaped in its key.
func TestBondsOfStrangeNames(t *testing.T) {
	facts := map[string]string{"fleet/model": "m", `proc/engine-é"1/id`: "boot:1:2"}
	bonds := bondsOf(record.NewKey("C", "live", `é"1`), facts)
	if want := facts; !maps.Equal(bonds, want) {
		t.Errorf("got %v, want %v", bonds, want)
	}
	e := record.Entry{Bonds: bonds}
	if why := stale(e, facts); why != "" {
		t.Errorf("stale at once: %s", why)
	}
	facts[`proc/engine-é"1/id`] = "boot:9:9"
	if stale(e, facts) == "" {
		t.Error("a restart of the engine goes unnoticed")
	}
}

// factsFor gives every fact of a bond a value.
func factsFor(b Bond, names map[string]string) map[string]string {
	facts := map[string]string{}
	for i, f := range b.Facts {
		for holder, v := range names {
			f = strings.ReplaceAll(f, holder, v)
		}
		facts[f] = "value " + string(rune('a'+i))
	}
	return facts
}

var holders = map[string]string{"{h}": "hx", "{e}": "ex", "{a}": "ax", "{b}": "bx", "{p}": "px", "{d}": "dx"}

// TestInvalidationRows changes one fact of each row at a time: the row's evidence is stale
// for that reason, and for nothing else.
func TestInvalidationRows(t *testing.T) {
	seen := map[string]bool{}
	for _, row := range Invalidation {
		key := row.Evidence
		for h, v := range holders {
			key = strings.ReplaceAll(key, h, v)
		}
		if seen[key] {
			t.Errorf("%s has two rows", row.Evidence)
		}
		seen[key] = true
		facts := factsFor(row, holders)
		bonds := bondsOf(record.Key(key), facts)
		if !maps.Equal(bonds, facts) || len(facts) != len(row.Facts) || len(facts) == 0 {
			t.Errorf("%s is bound to %v, want %v", key, bonds, facts)
		}
		e := record.Entry{Bonds: bonds}
		if why := stale(e, facts); why != "" {
			t.Errorf("%s is stale at once: %s", key, why)
		}
		with := maps.Clone(facts)
		with["host/other/boot"] = "x"
		with["proc/other/id"] = "x"
		if why := stale(e, with); why != "" {
			t.Errorf("%s is stale for a fact of something else: %s", key, why)
		}
		for name := range facts {
			for _, now := range []string{"changed", "", Gone} {
				changed := maps.Clone(facts)
				changed[name] = now
				if stale(e, changed) == "" {
					t.Errorf("%s holds although %s is %q", key, name, now)
				}
			}
			missing := maps.Clone(facts)
			delete(missing, name)
			if stale(e, missing) == "" {
				t.Errorf("%s holds although %s is no longer known", key, name)
			}
		}
	}
}

// twoHosts is a fleet of two engines on two hosts, with a router on the first.
func twoHosts() fleet.Fleet {
	f := testFleet()
	f.Engines = []fleet.Engine{{IID: "p0", URL: "http://192.0.2.11:8100", AttestationURL: "http://192.0.2.11:8110/v1/attestation"}, {IID: "d0", URL: "http://192.0.2.12:8100", AttestationURL: "http://192.0.2.12:8110/v1/attestation"}}
	f.Deploy.Hosts["h2"] = fleet.Host{Address: "192.0.2.12", Root: "/opt/n"}
	f.Deploy.Engines = map[string]fleet.Place{"p0": {Host: "h1", Launch: "l"}, "d0": {Host: "h2", Launch: "l"}}
	return f
}

// allKeys is the evidence of all seven gates for twoHosts.
var allKeys = []record.Key{
	"A/inputs", "A/host/h1", "A/host/h2", "A/clock/h1", "A/hardware/h1", "A/network/h1", "A/network/h2", "A/images/h1", "A/model/h1", "B/manifest", "B/ground/h1", "B/lock/h1", "B/proof/h1", "B/release/h1", "B/files/h1", "B/key/h1", "B/release/h2", "B/files/h2", "B/key/h2",
	"C/ports/p0", "C/launch/p0", "C/live/p0", "C/cache/p0", "C/ports/d0", "C/launch/d0", "C/live/d0", "C/cache/d0",
	"D/budget", "D/pair/h1/h2", "D/decode/h1/h2", "E/sidecar/p0", "E/statement/p0", "E/sidecar/d0", "E/statement/d0",
	"F/profile/p0", "F/profile/d0", "F/pair/p0/d0", "F/pair/d0/p0", "F/store", "G/router", "G/ready", "G/trial", "G/journal", "G/ring", "G/acceptance", "G/bundle",
}

// live are the facts that a look at twoHosts gives.
func live() map[string]string {
	facts := map[string]string{
		"host/h1/boot": "b1", "host/h1/trees": "t1", "host/h2/boot": "b2", "host/h1/files": "none", "host/h2/files": "none", "host/h1/release": "r1", "host/h2/release": "r1",
		"host/h1/files-dir": "f1", "host/h2/files-dir": "f2", "host/h1/key": "k1", "host/h2/key": "k2", "host/h1/route/h2": "eth1 192.0.2.11 mtu 9000 speed 100000", "host/h2/route/h1": "eth1 192.0.2.12 mtu 9000 speed 100000",
		"proc/router/id": "b1:9:1", "proc/router/launch": "lr",
	}
	for _, e := range []string{"p0", "d0"} {
		facts["proc/engine-"+e+"/id"], facts["proc/engine-"+e+"/launch"] = "b:"+e+":1", "l"
		facts["proc/sidecar-"+e+"/id"], facts["proc/sidecar-"+e+"/launch"] = "s:"+e+":1", "s"
	}
	return facts
}

// world of facts: what is known when nothing changed, and the state bound to it.
func settled(f fleet.Fleet) (record.State, map[string]string) {
	s := record.State{Gates: map[string]record.Gate{}}
	for _, k := range allKeys {
		g := s.Gates[k.Gate()]
		if g.Evidence == nil {
			g.Evidence = map[record.Key]record.Entry{}
		}
		g.Evidence[k] = record.Entry{Ref: record.Ref{SHA256: string(k)}, Time: time.Now()}
		s.Gates[k.Gate()] = g
	}
	facts := factsUnder(f, s, Release{SHA256: "r1"}, live())
	for _, g := range s.Gates {
		for k, e := range g.Evidence {
			e.Bonds = bondsOf(k, facts)
			g.Evidence[k] = e
		}
	}
	return s, facts
}

func factsUnder(f fleet.Fleet, s record.State, rel Release, seen map[string]string) map[string]string {
	facts := Inputs(f, rel)
	maps.Copy(facts, seen)
	derive(f, facts, s)
	return facts
}

func staleKeys(s record.State, facts map[string]string) []record.Key {
	var out []record.Key
	for _, k := range allKeys {
		if e, _ := s.Evidence(k); stale(e, facts) != "" {
			out = append(out, k)
		}
	}
	return out
}

// TestInvalidation says for each change of the world which evidence it withdraws, and that
// it withdraws nothing else. What rests on evidence that is made again follows once that
// is done; see TestInvalidationChain.
func TestInvalidation(t *testing.T) {
	restarted := []record.Key{"C/live/p0", "C/cache/p0", "E/sidecar/p0", "E/statement/p0", "F/pair/p0/d0", "F/pair/d0/p0"}
	for name, c := range map[string]struct {
		fleet func(*fleet.Fleet)
		rel   string
		seen  func(map[string]string)
		want  []record.Key
	}{
		"nothing": {},
		"SLO": {
			fleet: func(f *fleet.Fleet) { f.SLO.TTFTS = 9 },
			want:  []record.Key{"A/inputs", "F/pair/p0/d0", "F/pair/d0/p0", "G/router", "G/trial", "G/acceptance"},
		},
		"engine restarted by the same launch": {
			seen: func(s map[string]string) { s["proc/engine-p0/id"] = "b:p0:2" },
			want: restarted,
		},
		"engine launched differently": {
			seen: func(s map[string]string) {
				s["proc/engine-p0/id"], s["proc/engine-p0/launch"] = "b:p0:2", "l2"
			},
			want: append([]record.Key{"C/launch/p0", "F/profile/p0"}, restarted...),
		},
		"engine gone": {
			seen: func(s map[string]string) {
				s["proc/engine-p0/id"], s["proc/engine-p0/launch"] = Gone, Gone
			},
			want: append([]record.Key{"C/launch/p0", "F/profile/p0"}, restarted...),
		},
		"launch changed in the file": {
			fleet: func(f *fleet.Fleet) {
				f.Deploy.Launch["l2"] = fleet.Launch{Kind: "process", Argv: []string{"x"}}
				f.Deploy.Engines["p0"] = fleet.Place{Host: "h1", Launch: "l2"}
			},
			want: []record.Key{"A/inputs", "C/ports/p0", "C/launch/p0", "D/decode/h1/h2", "F/profile/p0"},
		},
		"sidecar restarted": {
			seen: func(s map[string]string) { s["proc/sidecar-d0/id"] = "s:d0:2" },
			want: []record.Key{"E/sidecar/d0", "E/statement/d0"},
		},
		"route": {
			seen: func(s map[string]string) { s["host/h1/route/h2"] = "eth0 198.51.100.1" },
			want: []record.Key{"D/pair/h1/h2", "D/decode/h1/h2", "F/pair/p0/d0", "F/pair/d0/p0"},
		},
		"a link renegotiated to a tenth": {
			seen: func(s map[string]string) { s["host/h2/route/h1"] = "eth1 192.0.2.12 mtu 9000 speed 10000" },
			want: []record.Key{"D/pair/h1/h2", "D/decode/h1/h2", "F/pair/p0/d0", "F/pair/d0/p0"},
		},
		"host rebooted, nothing came back": {
			seen: func(s map[string]string) {
				s["host/h2/boot"] = "b3"
				for k := range s {
					if strings.HasPrefix(k, "proc/") && strings.Contains(k, "d0") {
						s[k] = Gone
					}
				}
			},
			want: []record.Key{"A/host/h2", "A/network/h2", "C/launch/d0", "C/live/d0", "C/cache/d0", "E/sidecar/d0", "E/statement/d0", "F/profile/d0", "F/pair/p0/d0", "F/pair/d0/p0"},
		},
		"release": {
			rel:  "r2",
			want: []record.Key{"A/inputs", "B/manifest", "B/ground/h1", "B/lock/h1", "B/proof/h1", "B/release/h1", "B/release/h2", "E/sidecar/p0", "E/sidecar/d0", "G/router"},
		},
		"release switched by hand": {
			seen: func(s map[string]string) { s["host/h1/release"] = "r0" },
			want: []record.Key{"B/release/h1"},
		},
		"role files changed": {
			seen: func(s map[string]string) { s["host/h1/files-dir"] = "fx" },
			want: []record.Key{"B/files/h1"},
		},
		"sidecar key gone": {
			seen: func(s map[string]string) { s["host/h1/key"] = "none" },
			want: []record.Key{"B/key/h1"},
		},
		"checkpoint changed": {
			seen: func(s map[string]string) { s["host/h2/files"] = "other" },
			want: []record.Key{"A/host/h2"},
		},
		"host address": {
			fleet: func(f *fleet.Fleet) { h := f.Deploy.Hosts["h1"]; h.Address = "198.51.100.7"; f.Deploy.Hosts["h1"] = h },
			want:  []record.Key{"A/inputs", "A/host/h1", "A/clock/h1", "A/hardware/h1", "A/network/h1", "A/images/h1", "A/model/h1", "B/ground/h1", "B/lock/h1", "B/proof/h1", "B/files/h1", "B/key/h1", "B/release/h1", "D/pair/h1/h2", "D/decode/h1/h2", "F/pair/p0/d0", "F/pair/d0/p0"},
		},
		"checkpoint": {
			seen: func(s map[string]string) { s["host/h1/trees"] = "t2" },
			want: []record.Key{"A/model/h1"},
		},
		"image": {
			fleet: func(f *fleet.Fleet) {
				l := f.Deploy.Launch["l"]
				l.Kind, l.Image, l.ModelDir = fleet.LaunchContainer, "sha256:1", "/m"
				f.Deploy.Launch["l"] = l
			},
			want: []record.Key{"A/inputs", "A/images/h1", "A/model/h1", "C/ports/p0", "C/launch/p0", "C/ports/d0", "C/launch/d0", "D/decode/h1/h2", "F/profile/p0", "F/profile/d0"},
		},
		"fabric": {
			fleet: func(f *fleet.Fleet) { f.Deploy.Fabric.Transport = "rdma" },
			want:  []record.Key{"A/inputs", "D/budget", "D/pair/h1/h2", "D/decode/h1/h2"},
		},
		"fabric budget": {
			fleet: func(f *fleet.Fleet) { f.Deploy.Fabric.HandoffsPerS = 9 },
			want:  []record.Key{"A/inputs", "D/budget"},
		},
		"contract": {
			fleet: func(f *fleet.Fleet) { f.EngineContract = &fleet.Contract{EngineVersion: "9"} },
			want:  []record.Key{"A/inputs", "C/cache/p0", "C/cache/d0", "E/sidecar/p0", "E/sidecar/d0", "E/statement/p0", "E/statement/d0", "F/store", "G/router"},
		},
		"trial": {
			fleet: func(f *fleet.Fleet) { f.Deploy.Trial.Requests = 9 },
			want:  []record.Key{"A/inputs", "G/trial", "G/journal", "G/ring", "G/acceptance", "G/bundle"},
		},
		"policy": {
			fleet: func(f *fleet.Fleet) { f.Deploy.Policy.MinDiskFree = 1 },
			want:  []record.Key{"A/inputs"},
		},
		"model": {
			fleet: func(f *fleet.Fleet) { f.Model = "other" },
			want: []record.Key{"A/inputs", "B/files/h1", "B/files/h2", "C/ports/p0", "C/launch/p0", "C/live/p0", "C/ports/d0", "C/launch/d0", "C/live/d0", "D/decode/h1/h2",
				"F/profile/p0", "F/profile/d0", "F/pair/p0/d0", "F/pair/d0/p0", "G/router"},
		},
		"router restarted": {
			seen: func(s map[string]string) { s["proc/router/id"] = "b1:9:2" },
			want: []record.Key{"G/ready", "G/trial", "G/journal", "G/ring", "G/acceptance", "G/bundle"},
		},
		"router moved": {
			fleet: func(f *fleet.Fleet) { f.Deploy.Router.Listen = "127.0.0.1:9000" },
			want:  []record.Key{"A/inputs", "G/router"},
		},
	} {
		f, rel, seen := twoHosts(), Release{SHA256: "r1"}, live()
		s, _ := settled(f)
		if c.fleet != nil {
			c.fleet(&f)
		}
		if c.rel != "" {
			rel.SHA256 = c.rel
		}
		if c.seen != nil {
			c.seen(seen)
		}
		got := staleKeys(s, factsUnder(f, s, rel, seen))
		slices.Sort(got)
		slices.Sort(c.want)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s withdraws\n got %v\nwant %v", name, got, c.want)
		}
	}
}

// TestInvalidationChain makes evidence again and looks at what rested on it.
func TestInvalidationChain(t *testing.T) {
	for again, want := range map[record.Key][]record.Key{
		"C/cache/p0":   {"D/budget"},
		"F/profile/d0": {"F/store", "G/router"},
		"D/pair/h1/h2": nil,
	} {
		f := twoHosts()
		s, _ := settled(f)
		e := s.Gates[again.Gate()].Evidence[again]
		e.Ref.SHA256 = "other bytes"
		s.Gates[again.Gate()].Evidence[again] = e
		if got := staleKeys(s, factsUnder(f, s, Release{SHA256: "r1"}, live())); !slices.Equal(got, want) {
			t.Errorf("a new %s withdraws %v, want %v", again, got, want)
		}
	}
}

func TestNeeds(t *testing.T) {
	r := newRig(t)
	r.pass(Options{})
	s, err := record.Read(r.dir)
	if err != nil {
		t.Fatal(err)
	}
	facts := maps.Clone(Inputs(r.fleet, r.rel))
	maps.Copy(facts, map[string]string{"host/h1/boot": "boot-1", "proc/engine-e/id": r.world.proc.ID, "proc/engine-e/launch": r.world.proc.Launch})
	if got := Needs(third{}, r.fleet, s.State, facts, s.Load); len(got) != 0 {
		t.Errorf("needs %v", got)
	}
	if got := Needs(third{}, r.fleet, record.State{}, facts, s.Load); len(got) != 2 || got["C/live/e"] != "never recorded" {
		t.Errorf("needs %v of an empty record", got)
	}
	r.fleet.Deploy.Policy.MaxEvidenceAge = fleet.Duration(time.Hour)
	if got := Needs(third{}, r.fleet, s.State, facts, s.Load); len(got) != 0 {
		t.Errorf("needs %v within the hour", got)
	}
	r.fleet.Deploy.Policy.MaxEvidenceAge = 1
	if got := Needs(third{}, r.fleet, s.State, facts, s.Load); len(got) != 2 || !strings.Contains(got["C/live/e"], "max_evidence_age") {
		t.Errorf("needs %v above the age", got)
	}
	if got := StaleUnder(r.gates, r.fleet, s.State, facts, s.Load); len(got) != 4 {
		t.Errorf("stale %v above the age", got)
	}
}

// TestStaleUnder counts facts that were not looked at as unchanged.
func TestStaleUnder(t *testing.T) {
	r := newRig(t)
	r.pass(Options{})
	s, err := record.Read(r.dir)
	if err != nil {
		t.Fatal(err)
	}
	if got := StaleUnder(r.gates, r.fleet, s.State, Inputs(r.fleet, r.rel), s.Load); len(got) != 0 {
		t.Errorf("stale %v with the same inputs", got)
	}
	got := StaleUnder(r.gates, r.fleet, s.State, map[string]string{"proc/engine-e/id": Gone}, s.Load)
	if len(got) != 1 || got["C/live/e"] != "engine-e is not running" {
		t.Errorf("stale %v", got)
	}
	r.fleet.Model = "other"
	got = StaleUnder(r.gates, r.fleet, s.State, Inputs(r.fleet, r.rel), s.Load)
	if len(got) != 3 || got["A/inputs"] != "the fleet file changed: document" {
		t.Errorf("stale %v with another model", got)
	}
}

// FuzzBecause puts any fact of a foreign record into words.
func FuzzBecause(f *testing.F) {
	for _, s := range []string{"", "/", "proc", "proc/x", "proc/x/launch", "host", "host/h/boot", "host/h/route", "host/h/route/g", "path", "path/a", "path/a/b", "fleet", "fleet/slo", "cache", "x"} {
		f.Add(s, "a", "b")
		f.Add(s, Gone, Gone)
	}
	f.Fuzz(func(t *testing.T, fact, was, is string) {
		if because(fact, was, is) == "" {
			t.Errorf("no words for %q", fact)
		}
	})
}
