package install

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/fleet/units"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/internal/process"
)

// UnitsRequest names the unit files of a host.
type UnitsRequest struct {
	Dir   string   `json:"dir"`
	Names []string `json:"names"`
	User  bool     `json:"user,omitempty"`
}

// Units are the unit files as read back, and what systemd-analyze says of them.
type Units struct {
	Files  []UnitFile `json:"files"`
	Digest string     `json:"digest"` // of all, as the live look computes it
	// Checked is false where the host has no systemd-analyze.
	Checked bool `json:"checked"`
	Refused bool `json:"refused,omitempty"`
	// Said are its lines, bounded.
	Said []string `json:"said"`
}

// UnitFile is one of them.
type UnitFile struct {
	Name   string `json:"name"`
	SHA256 string `json:"sha256"` // "none" when it cannot be read
}

// UnitAwayRequest takes one unit file away.
type UnitAwayRequest struct {
	Root   string `json:"root"`
	Path   string `json:"path"`
	SHA256 string `json:"sha256"`
}

const (
	analyzeLimit = 30 * time.Second
	analyzeBytes = 64 << 10
	saidLines    = 40
	maxUnit      = 1 << 20
)

// readUnits reads the files back and lets systemd-analyze read them.
func readUnits(ctx context.Context, q UnitsRequest) (Units, error) {
	out := Units{Files: []UnitFile{}, Digest: gates.UnitsFact(q.Dir), Said: []string{}}
	argv := []string{"verify", "--man=no"}
	if q.User {
		argv = append([]string{"--user"}, argv...)
	}
	for _, name := range q.Names {
		if !filepath.IsLocal(name) || filepath.Base(name) != name {
			return out, fmt.Errorf("read units: %.80q is no name of one", name)
		}
		file := filepath.Join(q.Dir, name)
		out.Files = append(out.Files, UnitFile{Name: name, SHA256: unitDigest(file)})
		argv = append(argv, file)
	}
	tool, err := exec.LookPath("systemd-analyze")
	if err != nil {
		return out, nil
	}
	ctx, cancel := context.WithTimeout(ctx, analyzeLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, tool, argv...)
	cmd.Env, cmd.WaitDelay = process.ManagerEnv(q.User), time.Second
	said, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return out, fmt.Errorf("verify units: systemd-analyze: %w", ctx.Err())
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return out, fmt.Errorf("verify units: systemd-analyze: %w", err)
	}
	out.Checked, out.Refused = true, err != nil
	for _, l := range strings.Split(string(said[:min(len(said), analyzeBytes)]), "\n") {
		if l = strings.TrimSpace(l); l != "" && len(out.Said) < saidLines {
			out.Said = append(out.Said, fmt.Sprintf("%.300s", strings.ToValidUTF8(l, "?")))
		}
	}
	return out, nil
}

func unitDigest(file string) string {
	st, err := os.Stat(file)
	if err != nil || !st.Mode().IsRegular() || st.Size() > maxUnit {
		return "none"
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return "none"
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// unitAway removes a unit file that nobody changed, with the launch beside it, and the folder of
// its set when that is empty. An older set stays. Doing it twice changes nothing.
func unitAway(_ context.Context, q UnitAwayRequest) (struct{}, error) {
	rel, err := filepath.Rel(filepath.Join(q.Root, units.Dir), q.Path)
	if err != nil || !filepath.IsLocal(rel) || filepath.Ext(q.Path) != ".service" {
		return struct{}{}, fmt.Errorf("remove unit: %.200q is none below %s of the root", q.Path, units.Dir)
	}
	b, err := os.ReadFile(q.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return struct{}{}, nil
	} else if err != nil {
		return struct{}{}, fmt.Errorf("remove unit: %w", err)
	}
	if sum := sha256.Sum256(b); hex.EncodeToString(sum[:]) != q.SHA256 {
		return struct{}{}, fmt.Errorf("remove unit: %s was changed since it was written; see what it holds, then remove it", q.Path)
	}
	if err := os.Remove(q.Path); err != nil {
		return struct{}{}, fmt.Errorf("remove unit: %w", err)
	}
	dir := filepath.Dir(q.Path)
	if left, _ := filepath.Glob(filepath.Join(dir, "*.service")); len(left) == 0 {
		return struct{}{}, os.RemoveAll(dir)
	}
	return struct{}{}, nil
}

// unitSteps write the units of a host once its manager can run them, and prove them.
func unitSteps(v gates.View, h string, after []string) []gates.Step {
	all := units.Of(v.Fleet, h)
	if len(all) == 0 || !v.Wants(managerKey(h)) && !v.Wants(unitsKey(h)) {
		return nil
	}
	root := v.Fleet.Deploy.Hosts[h].Root
	steps := []gates.Step{managerStep(v, h, after)}
	if !v.Wants(unitsKey(h)) {
		return steps
	}
	needs := append(append([]string{}, after...), steps[0].ID)
	q := UnitsRequest{Dir: units.Folder(v.Fleet, h), User: all[0].User}
	for _, u := range all {
		q.Names = append(q.Names, u.Name)
		s := gates.Step{
			// Each set is taken back by itself.
			ID: "B/unit/" + u.Process + "/" + path.Base(q.Dir) + "/" + h, Title: "write the unit of " + u.Process + " on " + h, Host: h, Effect: gates.Mutate, Limit: shortLimit, Needs: append([]string{}, needs...),
			File: gates.TextFile(u.Path, 0o644, u.Content),
			Undo: &gates.Undo{Title: "remove the unit of " + u.Process + " from " + h, Limit: shortLimit, Restores: "the units of " + h,
				Argv: gates.HostCommand(v.Fleet, h, "unit-away", UnitAwayRequest{Root: root, Path: u.Path, SHA256: u.SHA256})},
		}
		steps = append(steps, s)
	}
	for _, s := range steps[1:] {
		needs = append(needs, s.ID)
	}
	return append(steps, gates.Step{
		ID: "B/units/" + h, Title: "read back and verify the units of " + h, Host: h, Effect: gates.Observe, Limit: shortLimit, Needs: needs, Yields: unitsKey(h),
		Argv: gates.HostCommand(v.Fleet, h, "units", q),
	})
}

// judgeUnits checks that a host's manager can keep what it is told, and that the units are those
// that were written.
func judgeUnits(v gates.View, h string) (out []record.Finding) {
	all := units.Of(v.Fleet, h)
	if len(all) == 0 {
		return nil
	}
	add := func(k record.Key, f record.Finding) {
		f.Host, f.Evidence, f.Message = h, string(k), "host "+h+": "+f.Message
		out = append(out, f)
	}
	var m Manager
	if v.Decode(managerKey(h), &m) == nil {
		for _, f := range managerFaults(m) {
			add(managerKey(h), f)
		}
		if want := v.Fleet.Supervise(h); m.Scope != want {
			add(managerKey(h), record.Finding{Code: "unit-manager-unreachable", Want: "a look at the manager of scope " + want, Got: fmt.Sprintf("%.40q", m.Scope), Message: "another manager was looked at", Hint: "narwhal gate run --again B"})
		}
	}
	var u Units
	if v.Decode(unitsKey(h), &u) != nil {
		return out
	}
	for _, f := range unitFaults(u, all) {
		add(unitsKey(h), f)
	}
	return out
}

// unitFaults compare what was read back with what was to be written.
func unitFaults(u Units, all []units.Unit) (out []record.Finding) {
	got := map[string]string{}
	for _, f := range u.Files {
		got[f.Name] = f.SHA256
	}
	for _, w := range all {
		if got[w.Name] != w.SHA256 {
			out = append(out, record.Finding{Code: "unit-differs", Want: w.SHA256, Got: fmt.Sprintf("%.64s", printable(got[w.Name])), Message: fmt.Sprintf("unit %s is not the one that was written", w.Name), Hint: "narwhal gate run --again B writes it anew"})
		}
	}
	said := bytes.Buffer{}
	var ignored []string
	for _, l := range u.Said {
		l = fmt.Sprintf("%.300s", printable(l))
		fmt.Fprintf(&said, "%s; ", l)
		if strings.Contains(l, "ignoring") && strings.Contains(l, ".service") {
			ignored = append(ignored, l)
		}
	}
	switch {
	case !u.Checked:
		out = append(out, record.Finding{Code: "unit-unchecked", Note: true, Want: "units that systemd-analyze has read", Got: "no systemd-analyze", Message: "the host has no systemd-analyze: the units are first read when they are started", Hint: "install it with systemd"})
	case u.Refused:
		out = append(out, record.Finding{Code: "unit-refused", Want: "units that systemd-analyze accepts", Got: fmt.Sprintf("%.600s", said.String()), Message: fmt.Sprintf("systemd-analyze does not accept the units: %.600s", said.String()), Hint: `see systemd-analyze verify on the host, or set supervise: "own" for it`})
	case len(ignored) > 0:
		out = append(out, record.Finding{Code: "unit-sandbox-reduced", Note: true, Want: "a systemd that knows every line", Got: fmt.Sprintf("%d lines ignored", len(ignored)), Message: fmt.Sprintf("the host's systemd ignores lines of the units, so that the sandbox is smaller: %.300s", ignored[0]), Hint: "a newer systemd on the host knows them"})
	}
	return out
}

func wantsUnits(f fleet.Fleet, h string) bool { return len(units.Of(f, h)) > 0 }
