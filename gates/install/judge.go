package install

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/record"
)

// Judge checks that each host runs the release and says its role.
func (Gate) Judge(v gates.View) []record.Finding {
	out := judgeManifest(v)
	owner := map[string]string{} // public key → host
	for _, h := range v.Fleet.WorkHosts() {
		want := binaryOf(v, h)
		out = append(append(out, judgeScripts(v, h, want)...), judgeUnits(v, h)...)
		var s Switched
		if v.Decode(releaseKey(h), &s) == nil && (s.Self != want || s.Current != want) {
			out = append(out, record.Finding{Code: "release-differs", Host: h, Want: want, Got: s.Self, Evidence: string(releaseKey(h)),
				Message: fmt.Sprintf("host %s runs release %.12s, want %.12s", h, s.Self, want), Hint: "narwhal gate run --again B"})
		}
		var r RoleFiles
		if v.Decode(filesKey(h), &r) == nil {
			if want := roleOf(v.Fleet, h); !reflect.DeepEqual(r.Role, want) {
				out = append(out, record.Finding{Code: "role-differs", Host: h, Want: want.String(), Got: r.Role.String(), Evidence: string(filesKey(h)),
					Message: fmt.Sprintf("host %s says it is %s, want %s", h, r.Role, want),
					Hint:    "two hosts or fleets share one root: give each its own deploy.hosts root"})
			}
		}
		var k Key
		if v.Decode(keyKey(h), &k) != nil {
			continue
		}
		if k.Public == "" {
			out = append(out, record.Finding{Code: "sidecar-key-missing", Host: h, Evidence: string(keyKey(h)),
				Message: fmt.Sprintf("host %s has no sidecar key", h), Hint: "narwhal gate run --again B"})
		} else if first := owner[k.Public]; first != "" {
			out = append(out, record.Finding{Code: "sidecar-key-shared", Host: h, Want: "a key of its own", Got: "that of host " + first, Evidence: string(keyKey(h)),
				Message: fmt.Sprintf("hosts %s and %s have one sidecar key: either could sign for the other", first, h),
				Hint:    "one root for two hosts: give each its own deploy.hosts root; one image for both: remove etc/sidecar.key and .pub below the root of " + h + ", then narwhal gate run --again B"})
		} else {
			owner[k.Public] = h
		}
	}
	return out
}

// binaryOf is the digest that a host shall run: that for the machine which it says it is.
func binaryOf(v gates.View, h string) string {
	machine := ""
	if data, err := v.Evidence(groundKey(h)); err == nil {
		a, _ := readAnswer(data)
		system, name, _ := strings.Cut(a.one("machine"), " ")
		machine = gates.Arch(system, name)
	}
	b, _ := v.Release.For(machine)
	return b.SHA256
}

// judgeManifest refuses what is no program.
func judgeManifest(v gates.View) []record.Finding {
	data, err := v.Evidence(manifestKey)
	if err != nil {
		return nil // missing evidence is the runner's to report
	}
	out := manifestFaults(data)
	for i := range out {
		out[i].Evidence = string(manifestKey)
	}
	return out
}

func manifestFaults(data []byte) []record.Finding {
	var m Manifest
	if json.Unmarshal(data, &m) != nil || len(m.Binaries) == 0 {
		return []record.Finding{{Code: "release-architecture", Want: "a list of programs", Got: "none", Message: "the release's manifest lists no program", Hint: "narwhal gate run --again B"}}
	}
	for _, b := range m.Binaries {
		if b.Arch == "" {
			return []record.Finding{{Code: "release-architecture", Want: "a program of 64 bits for Linux or macOS", Got: "another kind of file", Message: fmt.Sprintf("the release %.12s is no program that a host could run", b.SHA256),
				Hint: "check deploy.release.binary and deploy.release.binaries; make release builds one for every system"}}
		}
	}
	return nil
}

// judgeScripts reads what the host's own tools said.
func judgeScripts(v gates.View, h, want string) []record.Finding {
	var out []record.Finding
	add := func(k record.Key, faults func([]byte) []record.Finding) {
		data, err := v.Evidence(k)
		if err != nil {
			return
		}
		for _, f := range faults(data) {
			f.Host, f.Evidence, f.Message = h, string(k), "host "+h+": "+f.Message
			out = append(out, f)
		}
	}
	add(groundKey(h), groundFaults)
	add(lockKey(h), lockFaults)
	add(proofKey(h), func(b []byte) []record.Finding { return proofFaults(b, want, trusts(v)) })
	return out
}

// Halts stops before sending what could not lie or run there, what another installs, and
// before running what is not proven.
func (Gate) Halts(key record.Key, data []byte) string {
	var faults []record.Finding
	switch key.Kind() {
	case "manifest":
		faults = manifestFaults(data)
	case "ground":
		faults = groundFaults(data)
	case "lock":
		faults = lockFaults(data)
	case "manager":
		var m Manager
		if json.Unmarshal(data, &m) != nil {
			return "the host says nothing of its manager"
		}
		faults = managerFaults(m)
	case "proof":
		if a, whole := readAnswer(data); !whole || a.one("runs") != "yes" {
			return "the release may not run"
		}
	}
	for _, f := range faults {
		if !f.Note {
			return f.Message
		}
	}
	return ""
}
