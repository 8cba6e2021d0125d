package units

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/narwhal-fleet/narwhal/fleet"
)

func tern(scope string) fleet.Fleet {
	return fleet.Fleet{
		Engines: []fleet.Engine{
			{IID: "p0", AttestationURL: "http://192.0.2.11:8110/v1/attestation"},
			{IID: "d0", AttestationURL: "http://192.0.2.12:8110/v1/attestation"},
			{IID: "d1"}, // without a sidecar
		},
		Serving: fleet.Serving{GracefulTimeoutS: 20.5},
		Deploy: &fleet.Deploy{
			Name: "tern", Supervise: scope, Hosts: map[string]fleet.Host{"h1": {Root: "/opt/narwhal"}, "h2": {Root: "/srv/narwhal"}},
			Engines:  map[string]fleet.Place{"p0": {Host: "h1"}, "d0": {Host: "h2"}, "d1": {Host: "h2"}},
			Launch:   map[string]fleet.Launch{"sim": {Kind: fleet.LaunchSimulated}, "box": {Kind: fleet.LaunchContainer}},
			Defaults: fleet.Defaults{Launch: "sim"},
			Router:   fleet.Router{Host: "h1", Listen: "127.0.0.1:8000", Standby: &fleet.Standby{Host: "h2", Listen: "127.0.0.1:8000"}, Lease: fleet.RouterLease{Path: "/shared/tern/lease"}},
		},
	}
}

func names(all []Unit) (out []string) {
	for _, u := range all {
		out = append(out, u.Name)
	}
	return out
}

func TestOf(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(*fleet.Fleet)
		host string
		want []string
	}{
		"narwhal's own":      {func(f *fleet.Fleet) { f.Deploy.Supervise = "" }, "h1", nil},
		"router and sidecar": {func(*fleet.Fleet) {}, "h1", []string{"narwhal-tern-router.service", "narwhal-tern-sidecar-p0.service"}},
		"standby":            {func(*fleet.Fleet) {}, "h2", []string{"narwhal-tern-sidecar-d0.service", "narwhal-tern-standby.service"}},
		"no lease":           {func(f *fleet.Fleet) { f.Deploy.Router.Lease.Path = "" }, "h2", []string{"narwhal-tern-sidecar-d0.service"}},
		"one host is otherwise": {func(f *fleet.Fleet) {
			f.Deploy.Hosts["h1"] = fleet.Host{Root: "/opt/narwhal", Supervise: fleet.SuperviseOwn}
		}, "h1", nil},
		"another host": {func(*fleet.Fleet) {}, "h3", nil},
	} {
		f := tern(fleet.SuperviseSystem)
		c.edit(&f)
		if got := names(Of(f, c.host)); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// has and lacks are whole lines.
func expect(t *testing.T, u Unit, has, lacks []string) {
	t.Helper()
	lines := strings.Split(string(u.Content), "\n")
	for _, l := range has {
		if !slices.Contains(lines, l) {
			t.Errorf("%s lacks %s:\n%s", u.Name, l, u.Content)
		}
	}
	for _, l := range lacks {
		if slices.ContainsFunc(lines, func(x string) bool { return strings.HasPrefix(x, l) }) {
			t.Errorf("%s has %s:\n%s", u.Name, l, u.Content)
		}
	}
}

func TestSandbox(t *testing.T) {
	must := func(f fleet.Fleet, host, process string) Unit {
		t.Helper()
		u, ok := For(f, host, process)
		if !ok {
			t.Fatalf("%s has no unit of %s", host, process)
		}
		return u
	}
	f := tern(fleet.SuperviseSystem)
	router := must(f, "h1", Router)
	expect(t, router, []string{
		`ExecStart="/opt/narwhal/current/narwhal" host become "/opt/narwhal/run" "` + path.Dir(router.Path) + `/router.json"`, "WantedBy=multi-user.target", "Restart=on-failure", "StartLimitBurst=5",
		"TimeoutStopSec=61", "NoNewPrivileges=yes", "CapabilityBoundingSet=", "ProtectSystem=strict", `ReadWritePaths="/opt/narwhal" "-/shared/tern"`, "ProtectHome=yes", "PrivateTmp=yes", "UMask=0077",
	}, []string{"EnvironmentFile", "MemoryMax"})
	expect(t, must(f, "h1", "sidecar-p0"), []string{"CapabilityBoundingSet=CAP_SYS_PTRACE CAP_DAC_READ_SEARCH", "ProtectHome=read-only", `ReadWritePaths="/opt/narwhal"`}, []string{"PrivateTmp", "WantedBy", "EnvironmentFile"})
	f.Deploy.Defaults.Launch = "box"
	expect(t, must(f, "h1", "sidecar-p0"), []string{"UMask=0077"}, []string{"NoNewPrivileges", "ProtectSystem", "RestrictNamespaces"})

	f = tern(fleet.SuperviseUser)
	user := must(f, "h1", Router)
	expect(t, user, []string{"WantedBy=default.target", "NoNewPrivileges=yes"}, []string{"ProtectSystem", "ProtectHome", "PrivateTmp", "CapabilityBoundingSet", "After=network-online", "RequiresMountsFor"})
	if !user.User || user.SHA256 == router.SHA256 || path.Dir(user.Path) == path.Dir(router.Path) {
		t.Errorf("the units of the two managers share a place: %s, %s", user.Path, router.Path)
	}

	f = tern(fleet.SuperviseSystem)
	f.Deploy.Hosts["h1"] = fleet.Host{Root: "/tmp/n"}
	f.Deploy.Router.HTTP.Tenants, f.Deploy.Router.Listen = "file:/home/ops/tenants.json", "0.0.0.0:80"
	f.Engine.EngineAPIKeyEnv, f.Deploy.Router.HTTP.ControlToken = "ENGINE_KEY", "env:CONTROL"
	expect(t, must(f, "h1", Router), []string{"ProtectHome=read-only", "CapabilityBoundingSet=CAP_NET_BIND_SERVICE", "EnvironmentFile=-/tmp/n/etc/router.env"}, []string{"PrivateTmp"})
	if got := Secrets(f, "h1"); !slices.Equal(got, []string{"CONTROL", "ENGINE_KEY"}) {
		t.Errorf("secrets %v", got)
	}
	if got := Hides(f, "h1"); len(got) != 0 {
		t.Errorf("hides %v", got)
	}
	if got := Hides(tern(fleet.SuperviseSystem), "h2"); !slices.Equal(got, []string{"/home", "/root", "/run/user", "/tmp", "/var/tmp"}) {
		t.Errorf("hides %v", got)
	}
}

// TestLaws: a unit's path tells its content, no specifier or variable of a path is read, and no line
// comes from a path.
func TestLaws(t *testing.T) {
	word := regexp.MustCompile(`[^%]%[^%]|[^$]\$[^$]`)
	rapid.Check(t, func(t *rapid.T) {
		scope := rapid.SampledFrom([]string{fleet.SuperviseSystem, fleet.SuperviseUser}).Draw(t, "scope")
		root := "/" + rapid.StringMatching(`[a-z%$" \\=-]{1,20}`).Draw(t, "root")
		f := tern(scope)
		f.Deploy.Hosts["h1"] = fleet.Host{Root: root}
		again := Of(f, "h1")
		for i, u := range Of(f, "h1") {
			if string(u.Content) != string(again[i].Content) || u.Path != again[i].Path {
				t.Fatal("the same fleet gave other units")
			}
			for _, l := range strings.Split(string(u.Content), "\n") {
				if rest, ok := strings.CutPrefix(l, "ExecStart="); ok && word.MatchString(strings.ReplaceAll(strings.ReplaceAll(rest, "%%", ""), "$$", "")) {
					t.Fatalf("a specifier or variable: %s", l)
				}
			}
		}
		f.Serving.GracefulTimeoutS++
		if later := Of(f, "h1"); later[0].Path == again[0].Path {
			t.Fatal("another content lies at the same path")
		}
	})
}
