package install

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/fleet/units"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/record"
)

func supervised(scope string) fleet.Fleet {
	f := testFleet()
	f.Deploy.Supervise = scope
	return f
}

// goodManager is a host on which units hold.
func goodManager(scope string) Manager {
	return Manager{Scope: scope, Systemd: true, Name: "root", Version: "252", Lingers: true, Root: "/opt/n"}
}

func goodUnits(f fleet.Fleet, h string) Units {
	out := Units{Files: []UnitFile{}, Digest: "d", Checked: true, Said: []string{}}
	for _, u := range units.Of(f, h) {
		out.Files = append(out.Files, UnitFile{u.Name, u.SHA256})
	}
	return out
}

func TestJudgeUnits(t *testing.T) {
	for name, c := range map[string]struct {
		scope  string
		change func(*Manager, *Units)
		want   []string
	}{
		"good, of the system":   {fleet.SuperviseSystem, func(*Manager, *Units) {}, nil},
		"good, of a user":       {fleet.SuperviseUser, func(m *Manager, _ *Units) { m.UID = 1000 }, nil},
		"no lingering, as root": {fleet.SuperviseSystem, func(m *Manager, _ *Units) { m.Lingers = false }, nil},
		"another init":          {fleet.SuperviseSystem, func(m *Manager, _ *Units) { m.Systemd, m.Version = false, "" }, []string{"unit-no-systemd@h1"}},
		"no answer":             {fleet.SuperviseSystem, func(m *Manager, _ *Units) { m.Version, m.Said = "", "Failed to connect\x1b[31m" }, []string{"unit-manager-unreachable@h1"}},
		"no user manager":       {fleet.SuperviseUser, func(m *Manager, _ *Units) { m.Version, m.Lingers = "", false }, []string{"unit-manager-unreachable@h1", "unit-lingering-off@h1"}},
		"lingering off":         {fleet.SuperviseUser, func(m *Manager, _ *Units) { m.Lingers = false }, []string{"unit-lingering-off@h1"}},
		"not root":              {fleet.SuperviseSystem, func(m *Manager, _ *Units) { m.UID = 1000 }, []string{"unit-no-right@h1"}},
		"a hidden root":         {fleet.SuperviseSystem, func(m *Manager, _ *Units) { m.Root, m.Hidden = "/home/n", "/home" }, []string{"unit-root-hidden@h1"}},
		"no secret":             {fleet.SuperviseSystem, func(m *Manager, _ *Units) { m.Missing = []string{"KEY"} }, []string{"unit-secret-missing@h1"}},
		"an open secret":        {fleet.SuperviseSystem, func(m *Manager, _ *Units) { m.Exposed = true }, []string{"unit-secret-exposed@h1"}},
		"another manager":       {fleet.SuperviseSystem, func(m *Manager, _ *Units) { m.Scope = fleet.SuperviseUser }, []string{"unit-manager-unreachable@h1"}},
		"other bytes":           {fleet.SuperviseSystem, func(_ *Manager, u *Units) { u.Files[0].SHA256 = "none" }, []string{"unit-differs@h1"}},
		"a missing file":        {fleet.SuperviseSystem, func(_ *Manager, u *Units) { u.Files = nil }, []string{"unit-differs@h1"}},
		"refused":               {fleet.SuperviseSystem, func(_ *Manager, u *Units) { u.Refused, u.Said = true, []string{"x.service: bad"} }, []string{"unit-refused@h1"}},
		"an old systemd": {fleet.SuperviseSystem, func(_ *Manager, u *Units) {
			u.Said = []string{"/opt/n/units/x/x.service:8: Unknown key 'ProtectClock' in section [Service], ignoring."}
		}, []string{"unit-sandbox-reduced@h1"}},
		"no tool": {fleet.SuperviseSystem, func(_ *Manager, u *Units) { u.Checked = false }, []string{"unit-unchecked@h1"}},
	} {
		f := supervised(c.scope)
		m, u := goodManager(c.scope), goodUnits(f, "h1")
		c.change(&m, &u)
		v := view(t, f, gates.Release{}, map[record.Key]any{managerKey("h1"): m, unitsKey("h1"): u})
		got := judgeUnits(v, "h1")
		if !slices.Equal(found(got), c.want) {
			t.Errorf("%s: found %v, want %v", name, found(got), c.want)
		}
		for _, x := range got {
			if x.Message == "" || x.Hint == "" || x.Evidence == "" || strings.ContainsAny(x.Message+x.Got, "\x1b\n") {
				t.Errorf("%s: finding %+v", name, x)
			}
			if note := strings.HasSuffix(x.Code, "-reduced") || x.Code == "unit-unchecked"; x.Note != note {
				t.Errorf("%s: note is %v", name, x.Note)
			}
		}
	}
}

// TestUnitKeys: narwhal's own supervision asks nothing of systemd, and a host without a process of
// narwhal's has no units.
func TestUnitKeys(t *testing.T) {
	if keys := (Gate{}).Expect(testFleet()); slices.Contains(keys, unitsKey("h1")) {
		t.Errorf("expects %v", keys)
	}
	f := supervised(fleet.SuperviseUser)
	keys := (Gate{}).Expect(f)
	for k, want := range map[record.Key]bool{managerKey("h1"): true, unitsKey("h1"): true, unitsKey("h2"): false} { // h2's engine has no sidecar
		if slices.Contains(keys, k) != want {
			t.Errorf("%s is expected: %v", k, !want)
		}
	}
	if why := (Gate{}).Halts(managerKey("h1"), []byte(`{"scope":"user","systemd":true,"version":"252","lingers":false}`)); !strings.Contains(why, "lingering") {
		t.Errorf("units would be written: %q", why)
	}
	if why := (Gate{}).Halts(managerKey("h1"), []byte(`garbage`)); why == "" {
		t.Error("garbage halts nothing")
	}
	if why := (Gate{}).Halts(managerKey("h1"), []byte(`{"scope":"user","systemd":true,"version":"252","lingers":true,"uid":7}`)); why != "" {
		t.Errorf("halts: %s", why)
	}
}

func TestSecretsIn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "router.env")
	if missing, _, err := secretsIn(path, []string{"A"}); err != nil || !slices.Equal(missing, []string{"A"}) {
		t.Errorf("no file: %v, %v", missing, err)
	}
	if missing, _, err := secretsIn(path, nil); err != nil || missing != nil {
		t.Errorf("none wanted: %v, %v", missing, err)
	}
	must(t, os.WriteFile(path, []byte("# C=1\nA=s3cret\nB=\n"), 0o600))
	missing, exposed, err := secretsIn(path, []string{"A", "B", "C"})
	if err != nil || exposed || !slices.Equal(missing, []string{"B", "C"}) {
		t.Errorf("missing %v, exposed %v, %v", missing, exposed, err)
	}
	must(t, os.Chmod(path, 0o640))
	if _, exposed, _ := secretsIn(path, []string{"A"}); !exposed {
		t.Error("a file that the group reads passes")
	}
}

// TestUnitAway removes what was written and nothing else, twice without harm.
func TestUnitAway(t *testing.T) {
	f := supervised(fleet.SuperviseSystem)
	root := t.TempDir()
	f.Deploy.Hosts["h1"] = fleet.Host{Root: root}
	u := units.Of(f, "h1")[0]
	must(t, os.MkdirAll(filepath.Dir(u.Path), 0o700))
	must(t, os.WriteFile(u.Path, u.Content, 0o600))
	older := filepath.Join(root, units.Dir, "older")
	must(t, os.MkdirAll(older, 0o700))
	q := UnitAwayRequest{Root: root, Path: u.Path, SHA256: u.SHA256}
	for name, bad := range map[string]UnitAwayRequest{
		"outside": {Root: root, Path: filepath.Join(root, "etc", "x.service"), SHA256: u.SHA256},
		"above":   {Root: root, Path: filepath.Join(root, units.Dir) + "/../../x.service", SHA256: u.SHA256},
		"a key":   {Root: root, Path: filepath.Join(root, units.Dir, "x.json"), SHA256: u.SHA256},
		"changed": {Root: root, Path: u.Path, SHA256: "other"},
	} {
		if _, err := unitAway(t.Context(), bad); err == nil {
			t.Errorf("%s: removed", name)
		}
	}
	for range 2 {
		if _, err := unitAway(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(filepath.Dir(u.Path)); !os.IsNotExist(err) {
		t.Errorf("the set is left: %v", err)
	}
	if _, err := os.Stat(older); err != nil {
		t.Errorf("the older set is gone: %v", err)
	}
}

// TestReadUnits lets the real systemd-analyze read the units of both managers.
func TestReadUnits(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		if os.Getenv("NARWHAL_REQUIRE_SYSTEMD") == "1" {
			t.Fatal("systemd-analyze is required and not installed")
		}
		t.Skip("systemd-analyze is not installed")
	}
	root := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(root, "current"), 0o700))
	must(t, os.WriteFile(filepath.Join(root, "current", "narwhal"), []byte("#!/bin/sh\n"), 0o700))
	f := supervised(fleet.SuperviseSystem)
	f.Engine.EngineAPIKeyEnv = "ENGINE_KEY"
	f.Deploy.Hosts["h1"] = fleet.Host{Root: root}
	f.Engines[0].AttestationURL = "http://127.0.0.1:8110/v1/attestation"
	q := UnitsRequest{Dir: units.Folder(f, "h1")}
	must(t, os.MkdirAll(q.Dir, 0o700))
	for _, u := range units.Of(f, "h1") {
		q.Names = append(q.Names, u.Name)
		must(t, os.WriteFile(u.Path, u.Content, 0o600))
	}
	got, err := readUnits(t.Context(), q)
	if err != nil || len(q.Names) != 2 {
		t.Fatalf("%+v, %v", got, err)
	}
	if faults := unitFaults(got, units.Of(f, "h1")); len(faults) != 0 || got.Digest != gates.UnitsFact(q.Dir) {
		t.Errorf("faults %+v of %+v", faults, got)
	}
	// What is broken is refused, what is unknown is told.
	must(t, os.WriteFile(filepath.Join(q.Dir, q.Names[0]), []byte("[Service]\nNoSuchKey=1\nExecStart=no/path\n"), 0o600))
	broken, err := readUnits(t.Context(), q)
	if err != nil || found(unitFaults(broken, units.Of(f, "h1")))[0] != "unit-differs@" || !slices.Contains(found(unitFaults(broken, units.Of(f, "h1"))), "unit-refused@") {
		t.Errorf("%+v, %v", broken, err)
	}
	if broken.Digest == got.Digest {
		t.Error("the digest of other bytes is the same")
	}
	if _, err := readUnits(t.Context(), UnitsRequest{Dir: q.Dir, Names: []string{"../x.service"}}); err == nil {
		t.Error("a name with a folder was read")
	}
}
