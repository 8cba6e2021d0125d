package drills

import (
	"os"
	"path/filepath"
	"strings"
)

// fleetFaults are in the fleet file, keys and command line: nothing may be started.
var fleetFaults = []fault{
	{id: "fleet-cut", where: "fleet file", how: "ends in the middle", do: raw(`{"schema": "narwhal.fleet",`), code: "invalid_fleet", exit: 2, quick: true},
	{id: "fleet-empty", where: "fleet file", how: "is empty", do: raw(""), code: "invalid_fleet", exit: 2},
	{id: "fleet-binary", where: "fleet file", how: "holds bytes that are no text", do: raw("\x00\xff\xfe\x7fELF"), code: "invalid_fleet", exit: 2},
	{id: "fleet-list", where: "fleet file", how: "is a list", do: raw("[]"), code: "invalid_fleet", exit: 2},
	{id: "fleet-version", where: "fleet file", how: "names a version of the schema that is not known", do: set(99, "schema_version"), code: "invalid_fleet", exit: 2},
	{id: "fleet-absent", where: "fleet file", how: "is not there", do: func(s *scene) { s.doc = nil; s.bare = true }, args: []string{"gate", "run", "A", "-f", "{dir}/none.json"}, code: "file_unreadable", exit: 2, hint: "path"},
	{id: "fleet-unknown-key", where: "fleet file", how: "has a key that is misspelt", do: set(1, "deploy", "fabrik"), code: "invalid_fleet", exit: 2, hint: "fabric"},
	{id: "fleet-no-slo", where: "fleet file", how: "has no limits of latency", do: set(object{}, "slo"), code: "invalid_fleet", exit: 2},
	{id: "fleet-negative-slo", where: "fleet file", how: "has a negative limit", do: set(-1, "slo", "ttft_s"), code: "invalid_fleet", exit: 2},
	{id: "fleet-twice", where: "fleet file", how: "names one engine twice", do: edit(func(d object) { engine(d, 1)["iid"] = "e0" }), code: "invalid_fleet", exit: 2},
	{id: "fleet-no-engines", where: "fleet file", how: "has no engines", do: set([]any{}, "engines"), code: "invalid_fleet", exit: 2},
	{id: "fleet-host-unknown", where: "fleet file", how: "places an engine on a host that is not there", do: set("nowhere", "deploy", "engines", "e1", "host"), code: "invalid_fleet", exit: 2, hint: "correct the name"},
	{id: "fleet-router-unknown", where: "fleet file", how: "places the router on a host that is not there", do: set("nowhere", "deploy", "router", "host"), code: "invalid_fleet", exit: 2, hint: "correct the name"},
	{id: "fleet-launch-unknown", where: "fleet file", how: "names a launch that is not there", do: set("nope", "deploy", "defaults", "launch"), code: "invalid_fleet", exit: 2, hint: "correct the name"},
	{id: "fleet-jump-unknown", where: "fleet file", how: "names a jump host that is not there", do: set("gate", "deploy", "hosts", "host-2", "jump"), code: "invalid_fleet", exit: 2, hint: "correct the name"},
	{id: "fleet-name-path", where: "fleet file", how: "has a name that leaves the state folder", do: set("../x", "deploy", "name"), code: "invalid_fleet", exit: 2, quick: true},
	{id: "fleet-root-relative", where: "fleet file", how: "has a root that is no absolute path", do: set("narwhal", "deploy", "hosts", "host-2", "root"), code: "invalid_fleet", exit: 2},
	{id: "fleet-duration", where: "fleet file", how: "has a time without unit", do: set("30", "deploy", "launch", "simulated", "ready_within"), code: "invalid_fleet", exit: 2},
	{id: "fleet-port-twice", where: "fleet file", how: "gives two engines of one host one port", do: edit(func(d object) {
		engine(d, 1)["url"] = engine(d, 0)["url"]
		sub(d, "deploy", "engines", "e1")["host"] = "host-1"
	}), code: "invalid_fleet", exit: 2},
	{id: "fleet-secret-plain", where: "fleet file", how: "holds a secret instead of a reference", do: set(object{"HF_TOKEN": "hf_abcdef"}, "deploy", "launch", "simulated", "secrets"), code: "invalid_fleet", exit: 2},
	{id: "fleet-transport", where: "fleet file", how: "names a transport that is not known", do: set("carrier-pigeon", "deploy", "fabric", "transport"), code: "invalid_fleet", exit: 2},
	{id: "fleet-release-plain", where: "fleet file", how: "names the release by no reference", do: set("/no/such", "deploy", "release", "binary"), code: "invalid_fleet", exit: 2},
	{id: "release-absent", where: "workstation", how: "the named release is not there", do: set("file:none", "deploy", "release", "binary"), code: "release_unreadable", exit: 2, hint: "deploy.release.binary"},
	{id: "key-absent", where: "key", how: "the operator's key is not there", do: set("file:keys/none.key", "deploy", "sign", "key"), code: "key_missing", exit: 2, hint: "keys generate"},
	{id: "key-garbage", where: "key", how: "the operator's key is no key", do: both(keyFile("garbage.key", "no key\n", 0o600), set("file:keys/garbage.key", "deploy", "sign", "key")), code: "key_unusable", exit: 2, hint: "deploy.sign"},
	{id: "key-open", where: "key", how: "others may read the operator's key", do: both(openKey, set("file:keys/open.key", "deploy", "sign", "key")), code: "key_unusable", exit: 2, hint: "0600"},
	{id: "key-kms-unknown", where: "key", how: "no program signs with the named key service", do: set("awskms:///alias/narwhal", "deploy", "sign", "key"), code: "kms_missing", exit: 2, hint: "PATH"},
	{id: "gate-unknown", where: "command line", how: "names no gate", do: nothing, args: []string{"gate", "run", "Z"}, code: "unknown_gate", exit: 2, hint: "A to G"},
	{id: "run-unknown", where: "command line", how: "names no run", do: nothing, args: []string{"gate", "status", "--run", "1999"}, code: "no_such_run", exit: 2, hint: "gate run"},
	{id: "plan-short", where: "command line", how: "a plan is approved by four digits", do: nothing, args: []string{"gate", "run", "A", "--plan", "abcd"}, code: "plan_digest_short", exit: 2, hint: "digits"},
	{id: "plan-stale", where: "command line", how: "another plan was approved", do: nothing, args: []string{"gate", "run", "A", "--plan", strings.Repeat("ab", 32)}, code: "plan_stale", exit: 6, hint: "gate plan"},
	{id: "state-file", where: "workstation", how: "the state folder is a file", do: func(s *scene) {
		must(s.t, os.RemoveAll(s.state))
		must(s.t, os.WriteFile(s.state, nil, 0o600))
	}, code: "state_unwritable", exit: 4, hint: "state folder"},
}

func nothing(*scene) {}

func engine(d object, i int) object { return d["engines"].([]any)[i].(object) }

func keyFile(name, content string, mode os.FileMode) func(*scene) {
	return func(s *scene) { s.file(filepath.Join(s.w.sbx.Dir, "keys", name), content, mode) }
}

func openKey(s *scene) {
	b, err := os.ReadFile(filepath.Join(s.w.sbx.Dir, "keys", "operator.key"))
	must(s.t, err)
	keyFile("open.key", string(b), 0o644)(s)
}
