package remote

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/narwhal-fleet/narwhal/fleet"
)

func fleetOf(hosts map[string]fleet.Host) fleet.Fleet {
	return fleet.Fleet{Deploy: &fleet.Deploy{Hosts: hosts}}
}

func bare() *resolver { return &resolver{home: "/home/me", user: "me", agent: "/run/agent"} }

func secretOf(ref fleet.SecretRef) (fleet.Secret, error) {
	if ref == "env:BAD" {
		return fleet.Secret{}, errors.New("BAD is not set")
	}
	return fleet.NewSecret("value of " + string(ref)), nil
}

func TestConfigFromTheFleetAlone(t *testing.T) {
	pin := "SHA256:" + strings.Repeat("A", 43)
	f := fleetOf(map[string]fleet.Host{
		"alpha": {Address: "192.0.2.1", Port: 2222, User: "narwhal", Jump: "inner", HostKeys: []string{pin},
			KnownHosts: "file:/kh", Identity: "file:~/key", Passphrase: "env:P", Password: "file:/pw"},
		"inner": {Address: "192.0.2.2", Jump: "outer"},
		"outer": {Address: "gate.example", User: "ops"},
	})
	c, err := bare().config(f, "alpha", secretOf)
	if err != nil {
		t.Fatal(err)
	}
	ids := []string{}
	for _, h := range c.Hops {
		ids = append(ids, h.ID+" "+h.User+"@"+h.Addr())
	}
	if d := cmp.Diff([]string{"outer ops@gate.example:22", "inner me@192.0.2.2:22", "alpha narwhal@192.0.2.1:2222"}, ids); d != "" {
		t.Error(d)
	}
	a := c.Hops[2]
	if a.Passphrase.Reveal() != "value of env:P" || a.Password.Reveal() != "value of file:/pw" || a.Agent != "/run/agent" || !a.InFleet {
		t.Errorf("%+v", a)
	}
	if d := cmp.Diff([]Identity{{Path: "/home/me/key", Required: true}}, a.Identities); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{"/kh"}, a.KnownHosts); d != "" {
		t.Error(d)
	}
	if len(c.Hops[0].KnownHosts)+len(c.Hops[0].Identities) > 0 {
		t.Errorf("a file of the user's is used unasked: %+v", c.Hops[0])
	}
}

func TestConfigRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		hosts map[string]fleet.Host
		want  string
	}{
		"unknown host":   {map[string]fleet.Host{}, `no "alpha"`},
		"unknown jump":   {map[string]fleet.Host{"alpha": {Address: "a", Jump: "b"}}, `no "b"`},
		"cycle":          {map[string]fleet.Host{"alpha": {Address: "a", Jump: "b"}, "b": {Address: "b", Jump: "alpha"}}, "alpha → b → alpha"},
		"itself":         {map[string]fleet.Host{"alpha": {Address: "a", Jump: "alpha"}}, "cycle"},
		"no address":     {map[string]fleet.Host{"alpha": {}}, "no address"},
		"port":           {map[string]fleet.Host{"alpha": {Address: "a", Port: 70000}}, "out of range"},
		"pin":            {map[string]fleet.Host{"alpha": {Address: "a", HostKeys: []string{"ssh-ed25519"}}}, "host_keys[0]"},
		"short digest":   {map[string]fleet.Host{"alpha": {Address: "a", HostKeys: []string{"SHA256:AAAA"}}}, "host_keys[0]"},
		"file reference": {map[string]fleet.Host{"alpha": {Address: "a", Identity: "/key"}}, "file:PATH"},
		"secret":         {map[string]fleet.Host{"alpha": {Address: "a", Password: "env:BAD"}}, "BAD is not set"},
		"option":         {map[string]fleet.Host{"alpha": {Address: "-oProxyCommand=id", SSHConfig: true}}, "no name for ssh"},
	} {
		_, err := bare().config(fleetOf(c.hosts), "alpha", secretOf)
		var hop *HopError
		if !errors.As(err, &hop) || hop.Stage != StageResolve || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := bare().config(fleet.Fleet{}, "alpha", nil); err == nil {
		t.Error("a fleet without deploy has a host")
	}
}

const sshConfig = `
Host alpha
  HostName 192.0.2.1
  Port 2200
  User narwhal
  HostKeyAlias alpha-key
  IdentityFile /keys/%h
  IdentitiesOnly yes
  IdentityAgent none
  UserKnownHostsFile /kh/one /kh/two
  ProxyJump ops@outer:2022,inner
Host outer
  HostName gate.example
  ProxyJump edge
Host inner
  HostName 192.0.2.2
  ProxyJump edge
  User in
Host round
  ProxyJump round
Host command
  ProxyCommand nc %h %p
Host *
  GlobalKnownHostsFile /kh/global
  UserKnownHostsFile /kh/user
`

// resolvers answer from sshConfig: with the installed client, where there is one, and without.
func resolvers(t *testing.T) map[string]*resolver {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(file, []byte(sshConfig), 0o600); err != nil {
		t.Fatal(err)
	}
	without := bare()
	without.files = []string{file, file + "-missing"}
	out := map[string]*resolver{"without client": without}
	if path, err := exec.LookPath("ssh"); err == nil {
		with := bare()
		with.ssh, with.args = path, []string{"-F", file}
		out["with client"] = with
	}
	return out
}

func TestConfigFromSSHConfiguration(t *testing.T) {
	for name, r := range resolvers(t) {
		t.Run(name, func(t *testing.T) {
			f := fleetOf(map[string]fleet.Host{"a": {Address: "alpha", SSHConfig: true}})
			c, err := r.config(f, "a", nil)
			if err != nil {
				t.Fatal(err)
			}
			var ids []string
			for _, h := range c.Hops {
				ids = append(ids, h.ID+" "+h.User+"@"+h.Addr())
			}
			outerUser, edge := "ops", "edge"
			want := []string{"edge " + c.Hops[0].User + "@" + edge + ":22", "outer " + outerUser + "@gate.example:2022", "inner in@192.0.2.2:22", "a narwhal@192.0.2.1:2200"}
			if d := cmp.Diff(want, ids); d != "" {
				t.Fatal(d)
			}
			a := c.Hops[3]
			if a.Alias != "alpha-key" || !a.IdentitiesOnly || a.Agent != "" || !a.InFleet || c.Hops[0].InFleet {
				t.Errorf("%+v", a)
			}
			if d := cmp.Diff([]Identity{{Path: "/keys/192.0.2.1"}}, a.Identities); d != "" {
				t.Error(d)
			}
			if a.KnownHosts[0] != "/kh/one" || a.KnownHosts[len(a.KnownHosts)-1] != "/kh/global" {
				t.Errorf("known hosts: %q", a.KnownHosts)
			}
			if c.Hops[0].Agent != "/run/agent" {
				t.Errorf("agent of a jump host: %q", c.Hops[0].Agent)
			}
		})
	}
}

func TestFleetBeatsSSHConfiguration(t *testing.T) {
	for name, r := range resolvers(t) {
		t.Run(name, func(t *testing.T) {
			f := fleetOf(map[string]fleet.Host{
				"a": {Address: "alpha", SSHConfig: true, Port: 22, User: "root", Jump: "g", Identity: "file:/mine", KnownHosts: "file:/mykh"},
				"g": {Address: "192.0.2.9"},
			})
			c, err := r.config(f, "a", nil)
			if err != nil {
				t.Fatal(err)
			}
			a := c.Hops[len(c.Hops)-1]
			if len(c.Hops) != 2 || c.Hops[0].ID != "g" || a.User != "root" || a.Addr() != "192.0.2.1:22" ||
				len(a.Identities) != 1 || a.Identities[0].Path != "/mine" || len(a.KnownHosts) != 1 {
				t.Errorf("%+v", c.Hops)
			}
			_, err = r.config(fleetOf(map[string]fleet.Host{"a": {Address: "command", SSHConfig: true}}), "a", nil)
			var proxy *ProxyCommandError
			if !errors.As(err, &proxy) || Hint(err) == "" {
				t.Errorf("ProxyCommand: %v", err)
			}
			if _, err = r.config(fleetOf(map[string]fleet.Host{"a": {Address: "round", SSHConfig: true}}), "a", nil); err == nil {
				t.Error("a cycle passes")
			}
		})
	}
}

func FuzzParseSettings(f *testing.F) {
	f.Add([]byte("user me\nhostname x\nidentityfile a b\nidentityfile c\n"))
	f.Add([]byte("x\n\n  y  z \n"))
	f.Fuzz(func(t *testing.T, out []byte) {
		for key, values := range parseSettings(out) {
			if strings.ContainsAny(key, " \n") || len(values) == 0 {
				t.Errorf("%q: %q", key, values)
			}
		}
	})
}

func FuzzParsePin(f *testing.F) {
	f.Add("SHA256:" + strings.Repeat("A", 43))
	f.Add("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGJ5dGVzIG9mIGEga2V5IHRoYXQgaXMgbm8gcmVhbCBvbmU= comment")
	f.Add("command=\"x\" ssh-rsa AAAA")
	f.Fuzz(func(t *testing.T, text string) {
		if p, err := parsePin(text); err == nil && (!strings.HasPrefix(p.fingerprint, "SHA256:") || len(p.fingerprint) != 50) {
			t.Errorf("%q became %+v", text, p)
		}
	})
}

func FuzzParseJump(f *testing.F) {
	for _, s := range []string{"a", "u@a:22", "ssh://u@[::1]:2222", "[::1]", "", "@", "a:b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if h, err := parseJump(text); err == nil && h.Address == "" {
			t.Errorf("%q became %+v", text, h)
		}
	})
}
