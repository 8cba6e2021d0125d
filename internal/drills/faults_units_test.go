package drills

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/narwhal-fleet/narwhal/internal/booted"
)

// bootedMark is there on a machine whose first process is systemd, which sandbox hosts share.
const bootedMark = "/run/systemd/system"

func noPlainMachine() string {
	if _, err := os.Stat(bootedMark); err == nil {
		return "this machine was booted with systemd"
	}
	return ""
}

const sidecarUnit = "narwhal-sandbox-sidecar-e1.service"

// inUnits names the unit file of the sidecar on the host with systemd.
func (s *scene) inUnits() string {
	s.t.Helper()
	found, _ := filepath.Glob(filepath.Join(s.w.booted.Dir, "narwhal", "units", "*", sidecarUnit))
	if len(found) != 1 {
		s.t.Fatalf("%s is there %d times", sidecarUnit, len(found))
	}
	return found[0]
}

// editedUnit adds a line to the unit of the sidecar.
func editedUnit(s *scene) {
	b, err := os.ReadFile(s.inUnits())
	must(s.t, err)
	s.file(s.inUnits(), string(b)+"\n# by hand\n", 0o644)
}

var onlyE = []string{"gate", "run", "--only", "E", "--yes"}

// unitFaults are of processes that systemd keeps running. Those with booted are on a host whose
// first process it is.
var unitFaults = []fault{
	{id: "unit-no-systemd", stage: "A", where: "fleet file", how: "units are wanted on hosts without systemd", needs: noPlainMachine, do: set("user", "deploy", "supervise"), args: []string{"gate", "run", "B", "--yes"}, code: "unit-no-systemd", exit: 1, hint: `supervise: "own"`, quick: true},
	{id: "unit-lingering", booted: true, stage: "A", where: "host", how: "the user of whom units are wanted does not linger", do: func(s *scene) { s.deploy("hosts", s.hosts[1].ID)["supervise"] = "user" },
		args: []string{"gate", "run", "B", "--yes"}, code: "unit-lingering-off", exit: 1, hint: "enable-linger"},
	{id: "unit-edited-seen", booted: true, stage: "D", where: "file on host", how: "a unit was edited by hand", do: editedUnit, args: []string{"gate", "status", "--live"}, gate: "B", code: "stale", exit: 0, hint: "units"},
	{id: "unit-edited", booted: true, stage: "D", where: "file on host", how: "a unit was edited by hand and is to be started", do: editedUnit, args: onlyE, code: "step-failed", exit: 4, says: "was changed"},
	{id: "unit-foreign", booted: true, stage: "D", where: "file on host", how: "a unit of the same name is another owner's", do: func(s *scene) {
		s.file(filepath.Join(s.w.booted.Dir, "etc", "system", sidecarUnit), "[Service]\nExecStart=/bin/true\n", 0o644)
	}, args: onlyE, code: "step-failed", exit: 4, says: "runs nothing below"},
	{id: "unit-ends", booted: true, stage: "D", where: "file on host", how: "a unit does not stay up, since somebody gave it another command", do: func(s *scene) {
		s.file(filepath.Join(s.w.booted.Dir, "etc", "system", sidecarUnit+".d", "site.conf"), "[Service]\nExecStart=\nExecStart=/bin/false\n", 0o644)
	}, args: onlyE, code: "step-failed", exit: 4, says: "ended at once"},
}

// managed drills the faults of a host with systemd.
func managed(t *testing.T, l *ledger) {
	todo := map[string][]fault{}
	for _, f := range table() {
		if f.booted && wanted(f) {
			todo[f.stage] = append(todo[f.stage], f)
		}
	}
	if len(todo) == 0 {
		t.Skip("no fault is wanted")
	}
	booted.Need(t)
	w := newWorld(t, 2)
	w.manage()
	before := ""
	for _, stage := range []string{"A", "D"} {
		if len(todo[stage]) == 0 {
			continue
		}
		w.t = t
		w.reach(before, stage)
		before = stage
		for _, f := range todo[stage] {
			t.Run(f.id, func(t *testing.T) {
				w.t = t
				l.add(t, w.drill(f))
				w.write(w.doc)
				w.reach(f.stage, f.stage)
			})
		}
	}
	w.t = t
}

// manage puts a host with systemd in the place of the sandbox's second one.
func (w *world) manage() {
	w.t.Helper()
	public, err := exec.Command("ssh-keygen", "-y", "-f", filepath.Join(w.sbx.Dir, "keys", "ssh")).Output()
	must(w.t, err)
	w.booted = booted.Boot(w.t, strings.TrimSpace(string(public)))
	pin, err := os.ReadFile(filepath.Join(w.booted.Dir, "host_key.pub"))
	must(w.t, err)
	doc := parse(w.t, w.doc)
	h := sub(doc, "deploy", "hosts", w.sbx.Hosts[1].ID)
	h["port"], h["user"], h["root"], h["host_keys"], h["supervise"] = w.booted.Port, "root", filepath.Join(w.booted.Dir, "narwhal"), []any{strings.TrimSpace(string(pin))}, "system"
	w.doc = text(w.t, doc)
}
