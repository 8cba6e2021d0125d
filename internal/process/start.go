package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Spec is a process to keep running under a name.
type Spec struct {
	Name string   `json:"name"`
	Argv []string `json:"argv"`
	// Env is added to PATH, HOME, LANG and the variables that Inherit names.
	Env     map[string]string `json:"env,omitempty"`
	Inherit []string          `json:"inherit,omitempty"`
	Dir     string            `json:"dir,omitempty"`
	// Before takes away what an earlier process of the name left outside its process group,
	// and is run only where the process is about to start. Running it twice must do no harm.
	Before []string `json:"before,omitempty"`
	// After takes away, once the process has been stopped, what it left outside its process
	// group, as the container of a runtime's client. Running it twice must do no harm.
	After []string `json:"after,omitempty"`
	// Launch identifies how the process was launched; equal digests are interchangeable.
	Launch string `json:"launch"`
	// Unit is the systemd unit that keeps the process running; nil = it is started here.
	Unit *Unit `json:"unit,omitempty"`
	// Again is the command of every start of the unit but the first; nil = Argv.
	Again []string `json:"again,omitempty"`
}

// Record is what is on disk about a started process.
type Record struct {
	Spec
	Identity
	Started time.Time `json:"started"`
	Log     string    `json:"log"`
	// LogFrom is where the log of this process begins in the file, in bytes.
	LogFrom int64 `json:"log_from,omitempty"`
	// SpecDigest identifies the spec as it was run; see Spec.Digest.
	SpecDigest string `json:"spec_sha256,omitempty"`
}

var (
	nameRE = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

	// ErrOther means that another launch already runs under the name.
	ErrOther = errors.New("another process runs under this name")
)

func paths(dir, name string) (rec, log, lock string) {
	base := filepath.Join(dir, name)
	return base + ".json", base + ".log", base + ".lock"
}

// Start runs the spec detached from the caller and returns its record. When a process
// with the same launch digest runs under the name, it is adopted: its record comes back
// and adopted is true. become is the command that calls Become (its last argument is
// the spec's file).
func Start(ctx context.Context, dir string, s Spec, become []string) (r Record, adopted bool, err error) {
	if !nameRE.MatchString(s.Name) || len(s.Argv) == 0 {
		return r, false, fmt.Errorf("start process %q: the name or the command is not usable", s.Name)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return r, false, fmt.Errorf("start process %s: %w", s.Name, err)
	}
	old, ok := Read(dir, s.Name)
	if ok && old.Alive() {
		if old.Launch != s.Launch {
			return old, false, otherError(s.Name, old)
		}
		return old, true, nil
	}
	if ok && old.Unit != nil { // it may be about to start what is dead
		if err := errors.Join(old.Unit.retire(ctx), forget(dir, s.Name, old.Identity)); err != nil {
			return r, false, fmt.Errorf("start process %s: %w", s.Name, err)
		}
	}
	if err := clearWay(ctx, s); err != nil {
		return r, false, fmt.Errorf("start process %s: %w", s.Name, err)
	}
	if s.Unit != nil {
		r, err := startUnit(ctx, dir, s)
		if err != nil {
			return r, false, fmt.Errorf("start process %s: %w", s.Name, err)
		}
		return r, false, nil
	}
	cmd, log, spec, err := prepare(dir, s, become)
	if err != nil {
		return r, false, err
	}
	defer os.Remove(spec)
	err = cmd.Start()
	_ = log.Close()
	if err != nil {
		return r, false, fmt.Errorf("start process %s: %w", s.Name, err)
	}
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	return awaitRecord(ctx, dir, s, cmd.Process.Pid, exited)
}

func otherError(name string, r Record) error {
	return fmt.Errorf("start process %s: %w (pid %d, launch %.12s)", name, ErrOther, r.PID, r.Launch)
}

// prepare makes the command, its open log, which the caller closes, and the spec's file.
func prepare(dir string, s Spec, become []string) (cmd *exec.Cmd, log *os.File, spec string, err error) {
	_, logPath, _ := paths(dir, s.Name)
	fail := func(err error) (*exec.Cmd, *os.File, string, error) {
		if spec != "" {
			_ = os.Remove(spec)
		}
		return nil, nil, "", fmt.Errorf("start process %s: %w", s.Name, err)
	}
	b, err := json.Marshal(s)
	if err != nil {
		return fail(err)
	}
	f, err := os.CreateTemp(dir, s.Name+".spec-*")
	if err != nil {
		return fail(err)
	}
	spec = f.Name()
	_, err = f.Write(b)
	if err = errors.Join(err, f.Close()); err != nil {
		return fail(err)
	}
	log, err = os.OpenFile(logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fail(err)
	}
	cmd = exec.Command(become[0], append(slices.Clone(become[1:]), dir, spec)...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Dir = s.Dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd, log, spec, nil
}

// awaitRecord waits until the child has recorded itself under the name, or has ended.
func awaitRecord(ctx context.Context, dir string, s Spec, pid int, exited <-chan error) (Record, bool, error) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if r, ok := Read(dir, s.Name); ok && r.PID == pid && r.Launch == s.Launch {
			return r, false, nil
		}
		select {
		case err := <-exited:
			if r, ok := Read(dir, s.Name); ok && r.PID != pid && r.Alive() { // somebody else was faster
				if r.Launch != s.Launch {
					return r, false, otherError(s.Name, r)
				}
				return r, true, nil
			}
			_, log, _ := paths(dir, s.Name)
			return Record{}, false, fmt.Errorf("start process %s: it ended at once (%v): %s", s.Name, err, Tail(log, 400))
		case <-ctx.Done():
			return Record{}, false, fmt.Errorf("start process %s: %w", s.Name, ctx.Err())
		case <-tick.C:
		}
	}
}

// Become turns the calling process into the spec's program: it records its own
// identity first, then replaces itself. It returns only on failure.
func Become(dir, specPath string) error {
	b, err := os.ReadFile(specPath)
	if err != nil {
		return fmt.Errorf("become: %w", err)
	}
	var s Spec
	if err := json.Unmarshal(b, &s); err != nil {
		return fmt.Errorf("become: %w", err)
	}
	recPath, logPath, lockPath := paths(dir, s.Name)
	lock, err := os.OpenFile(lockPath, os.O_CREATE|os.O_RDWR|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return fmt.Errorf("become %s: %w", s.Name, err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("become %s: %w", s.Name, err)
	}
	old, ok := Read(dir, s.Name)
	if ok && old.Alive() {
		return fmt.Errorf("become %s: %w (pid %d)", s.Name, ErrOther, old.PID)
	}
	if ok && s.Unit != nil && len(s.Again) > 0 && old.Unit != nil && old.Launch == s.Launch { // the manager starts it anew
		s.Argv = s.Again
	}
	self, err := Self()
	if err != nil {
		return err
	}
	env := environment(s)
	if path, ok := s.Env["PATH"]; ok { // the program is looked for where it will look itself
		if err := os.Setenv("PATH", path); err != nil {
			return fmt.Errorf("become %s: %w", s.Name, err)
		}
	}
	program, err := exec.LookPath(s.Argv[0])
	if err != nil {
		return fmt.Errorf("become %s: %w", s.Name, err)
	}
	r := Record{Spec: s, Identity: self, Started: time.Now().UTC(), Log: logPath, SpecDigest: s.Digest()}
	if st, err := os.Stat(logPath); err == nil {
		r.LogFrom = st.Size()
	}
	if err := remember(dir, r); err != nil {
		return fmt.Errorf("become %s: %w", s.Name, err)
	}
	if err := write(recPath, r); err != nil {
		return fmt.Errorf("become %s: %w", s.Name, err)
	}
	return fmt.Errorf("become %s: %w", s.Name, syscall.Exec(program, s.Argv, env))
}

// environment holds each name once: of two, C libraries take the first and shells the last.
func environment(s Spec) []string {
	vars := map[string]string{}
	for _, name := range append([]string{"PATH", "HOME", "LANG", "TMPDIR", "USER", "NARWHAL_LOOPBACK"}, s.Inherit...) {
		if v, ok := os.LookupEnv(name); ok {
			vars[name] = v
		}
	}
	maps.Copy(vars, s.Env)
	var env []string
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		env = append(env, name+"="+vars[name])
	}
	return env
}

func write(path string, r Record) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".tmp-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	if _, err = f.Write(b); err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// Read returns the record under a name; false when there is none that can be read.
func Read(dir, name string) (Record, bool) {
	path, _, _ := paths(dir, name)
	b, err := os.ReadFile(path)
	if err != nil || len(b) > 1<<20 {
		return Record{}, false
	}
	var r Record
	if json.Unmarshal(b, &r) != nil {
		return Record{}, false
	}
	return r, true
}

// List returns every record in the folder, by name.
func List(dir string) []Record {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var out []Record
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), ".json"); ok {
			if r, ok := Read(dir, name); ok && r.Name == name {
				out = append(out, r)
			}
		}
	}
	return out
}

// Tail returns the last bytes of a file, for messages.
func Tail(path string, n int64) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	if st, err := f.Stat(); err == nil && st.Size() > n {
		if _, err := f.Seek(-n, 2); err != nil {
			return ""
		}
	}
	b := make([]byte, n)
	m, _ := f.Read(b)
	return strings.TrimSpace(strings.ToValidUTF8(string(b[:m]), "?"))
}
