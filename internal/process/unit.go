package process

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/narwhal-fleet/narwhal/internal/atomicfile"
)

// Unit is a systemd service that runs a process by Become. Its file lies where the manager does
// not look; starting copies it there, and stopping takes the copy away.
type Unit struct {
	Name   string `json:"name"`
	File   string `json:"file"`
	SHA256 string `json:"sha256"` // of the file
	User   bool   `json:"user,omitempty"`
	// Boot starts it with the host, or with the user's manager.
	Boot bool `json:"boot,omitempty"`
}

var unitRE = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9:_.@-]{0,240}\.service$`)

// Folder is where the manager looks for units that an administrator wrote.
func (u Unit) Folder() (string, error) {
	if !u.User {
		return "/etc/systemd/system", nil
	}
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("find the folder of user units: %w", err)
	}
	return filepath.Join(dir, "systemd", "user"), nil
}

// home is the folder of all sets of units of one root, which each of them names.
func (u Unit) home() string { return filepath.Dir(filepath.Dir(u.File)) + "/" }

// launchFile is what the unit's command reads: the spec of its process, beside the unit.
func (u Unit) launchFile(name string) string {
	return filepath.Join(filepath.Dir(u.File), name+".json")
}

// install copies the unit, when it is the one that was meant, to where the manager looks.
func (u Unit) install() error {
	if !unitRE.MatchString(u.Name) {
		return fmt.Errorf("install unit %.80q: the name is not usable", u.Name)
	}
	b, err := os.ReadFile(u.File)
	if err != nil {
		return fmt.Errorf("install unit %s: %w", u.Name, err)
	}
	if sum := sha256.Sum256(b); hex.EncodeToString(sum[:]) != u.SHA256 {
		return fmt.Errorf("install unit %s: %s was changed, want the content with digest %.12s; narwhal gate run --again B writes it anew", u.Name, u.File, u.SHA256)
	}
	dir, err := u.Folder()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("install unit %s: %w", u.Name, err)
	}
	to := filepath.Join(dir, u.Name)
	if old, err := os.ReadFile(to); err == nil && !bytes.Contains(old, []byte(u.home())) {
		return fmt.Errorf("install unit %s: %s is there and runs nothing below %s; give this fleet another name, or remove that unit", u.Name, to, u.home())
	}
	if err := atomicfile.Write(to, b, 0o644); err != nil {
		return fmt.Errorf("install unit %s: %w", u.Name, err)
	}
	return nil
}

// startUnit makes the manager run the spec, and returns what the process recorded of itself.
func startUnit(ctx context.Context, dir string, s Spec) (Record, error) {
	u := *s.Unit
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return Record{}, err
	}
	if err := u.install(); err != nil {
		return Record{}, err
	}
	if err := atomicfile.Write(u.launchFile(s.Name), b, 0o600); err != nil {
		return Record{}, fmt.Errorf("write the launch of unit %s: %w", u.Name, err)
	}
	_, log, _ := paths(dir, s.Name)
	f, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600) // the manager would let others read it
	if err != nil {
		return Record{}, fmt.Errorf("open the log of unit %s: %w", u.Name, err)
	}
	_ = f.Close()
	r, err := u.run(ctx, dir, s)
	if err == nil {
		return r, nil
	}
	err = fmt.Errorf("%w: %s", err, Tail(log, 400))
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), retireLimit)
	defer cancel()
	return Record{}, errors.Join(err, u.retire(stop))
}

// recordLimit is how long a unit's process may take to record itself.
const recordLimit = 20 * time.Second

// run starts the unit and waits until its main process has recorded itself.
func (u Unit) run(ctx context.Context, dir string, s Spec) (Record, error) {
	if _, err := u.systemctl(ctx, "daemon-reload"); err != nil {
		return Record{}, err
	}
	_, _ = u.systemctl(ctx, "reset-failed", u.Name) // fails for a unit that never failed
	if u.Boot {
		if _, err := u.systemctl(ctx, "enable", u.Name); err != nil {
			return Record{}, err
		}
	}
	if _, err := u.systemctl(ctx, "start", u.Name); err != nil {
		return Record{}, err
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for until := time.Now().Add(recordLimit); ; {
		r, ok := Read(dir, s.Name)
		now, err := u.look(ctx)
		switch {
		case err != nil:
			return Record{}, err
		case ok && r.Unit != nil && r.Launch == s.Launch && r.PID == now.pid && r.Alive():
			return r, nil
		case now.ended():
			return Record{}, fmt.Errorf("unit %s ended at once: %s", u.Name, now.why)
		case time.Now().After(until):
			return Record{}, fmt.Errorf("unit %s runs process %d, and the record names %s", u.Name, now.pid, r.Identity)
		}
		select {
		case <-ctx.Done():
			return Record{}, fmt.Errorf("wait for unit %s: %w", u.Name, ctx.Err())
		case <-tick.C:
		}
	}
}

// unitState is what the manager says of a unit.
type unitState struct {
	pid         int // of its main process, 0 for none
	active, sub string
	why         string // of its last end
}

// ended: the process is not there, and the manager gave up or is about to start another one.
func (s unitState) ended() bool {
	return s.active == "failed" || s.active == "inactive" || s.sub == "auto-restart"
}

func (u Unit) look(ctx context.Context) (unitState, error) {
	out, err := u.systemctl(ctx, "show", "--property=MainPID,ActiveState,SubState,Result,ExecMainCode,ExecMainStatus", u.Name)
	if err != nil {
		return unitState{}, err
	}
	said := map[string]string{}
	for _, l := range strings.Split(out, "\n") {
		name, value, _ := strings.Cut(strings.TrimSpace(l), "=")
		said[name] = value
	}
	s := unitState{active: said["ActiveState"], sub: said["SubState"], why: fmt.Sprintf("result %.40s, status %.20s", said["Result"], said["ExecMainStatus"])}
	s.pid, _ = strconv.Atoi(said["MainPID"])
	if s.active == "" {
		return s, fmt.Errorf("ask for the state of unit %s: systemctl does not tell it", u.Name)
	}
	return s, nil
}

// stopUnit lets the manager end the unit, and what is left after the limit with KILL.
func stopUnit(ctx context.Context, dir string, r Record, within time.Duration) (Stopped, error) {
	u := *r.Unit
	out := Stopped{Name: r.Name, PID: r.PID}
	fail := func(err error) (Stopped, error) {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return out, fmt.Errorf("stop process %s: %w", r.Name, err)
	}
	if !unitRE.MatchString(u.Name) {
		return fail(fmt.Errorf("unit %.80q has no usable name", u.Name))
	}
	out.Was = r.Remains()
	if err := u.ask(ctx, "stop", "--no-block", u.Name); err != nil {
		return fail(err)
	}
	if now, ok := Read(dir, r.Name); ok && now.Unit != nil { // it may have been started anew a moment ago
		r, out.PID = now, now.PID
		out.Was = out.Was || r.Remains()
	}
	if !gone(ctx, r.Identity, within) {
		if ctx.Err() != nil {
			return fail(ctx.Err())
		}
		out.Killed = true
		if err := u.ask(ctx, "kill", "--signal=KILL", u.Name); err != nil {
			return fail(err)
		}
		if !gone(ctx, r.Identity, killWait) {
			return fail(fmt.Errorf("pid %d survived KILL", r.PID))
		}
	}
	if err := u.retire(ctx); err != nil {
		return fail(err)
	}
	if err := after(ctx, r); err != nil {
		return fail(err)
	}
	if err := forget(dir, r.Name, r.Identity); err != nil {
		return fail(err)
	}
	return out, nil
}

// retireLimit bounds what is asked of a manager about a unit whose process has ended.
const retireLimit = 30 * time.Second

// retire makes the manager forget the unit: it is stopped, and no longer started with the host.
// Doing it twice changes nothing.
func (u Unit) retire(ctx context.Context) error {
	if !unitRE.MatchString(u.Name) {
		return fmt.Errorf("remove unit %.80q: the name is not usable", u.Name)
	}
	dir, err := u.Folder()
	if err != nil {
		return err
	}
	for _, args := range [][]string{{"stop", u.Name}, {"disable", u.Name}} {
		if err := u.ask(ctx, args...); err != nil {
			return err
		}
	}
	if err := os.Remove(filepath.Join(dir, u.Name)); err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("remove unit %s: %w", u.Name, err)
	}
	if _, err := u.systemctl(ctx, "daemon-reload"); err != nil {
		return err
	}
	_, _ = u.systemctl(ctx, "reset-failed", u.Name) // a unit that is gone cannot have failed
	return nil
}

// ask is systemctl about a unit that the manager may not know.
func (u Unit) ask(ctx context.Context, args ...string) error {
	_, err := u.systemctl(ctx, args...)
	if err == nil {
		return nil
	}
	if out, serr := u.systemctl(ctx, "show", "--property=LoadState", "--value", u.Name); serr == nil && strings.TrimSpace(out) == "not-found" {
		return nil
	}
	return err
}

func (u Unit) systemctl(ctx context.Context, args ...string) (string, error) {
	return Systemctl(ctx, u.User, args...)
}
