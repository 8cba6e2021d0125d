package discover

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/internal/process"
)

// tree lists a folder: names, modes, sizes, times and content.
func tree(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		sum := ""
		if info.Mode().IsRegular() {
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			sum = fmt.Sprintf("%x", sha256.Sum256(data))
		}
		fmt.Fprintln(&b, path, info.Mode(), info.Size(), info.ModTime().UnixNano(), sum)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// shells are the POSIX shells of this machine.
func shells() map[string][]string {
	out := map[string][]string{}
	for name, argv := range map[string][]string{"sh": {"sh"}, "dash": {"dash"}, "bash": {"bash"}, "busybox": {"busybox", "sh"}} {
		if _, err := exec.LookPath(argv[0]); err == nil {
			out[name] = argv
		}
	}
	return out
}

// probeHere runs the probe on this machine with a home of its own.
func probeHere(t *testing.T, shell []string, home string, h fleet.Host) Observation {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, shell[0], append(shell[1:], "-c", Probe(h))...)
	cmd.Dir = home
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "TMPDIR=" + home}
	var out, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaints
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s", err, complaints.String())
	}
	if complaints.Len() > 0 {
		t.Errorf("the probe complains: %s", complaints.String())
	}
	o, err := Parse(out.Bytes())
	if err != nil {
		t.Fatalf("%v of\n%s", err, out.String())
	}
	return o
}

func TestProbeHere(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("compares with /proc")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for name, shell := range shells() {
		t.Run(name, func(t *testing.T) {
			home := t.TempDir()
			file := filepath.Join(home, "a file; 'with' $HOME")
			link := filepath.Join(home, "link")
			folder := filepath.Join(home, "folder")
			if err := os.WriteFile(file, []byte("weights"), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(file, link); err != nil {
				t.Fatal(err)
			}
			if err := os.Mkdir(folder, 0o700); err != nil {
				t.Fatal(err)
			}
			host := fleet.Host{Root: filepath.Join(home, "not", "yet", "there"), Files: []string{file, link, folder, home + "/none"}}
			before := tree(t, home)
			o := probeHere(t, shell, home, host)
			if after := tree(t, home); after != before {
				t.Errorf("the probe wrote:\nbefore %s\nafter %s", before, after)
			}
			sum := sha256.Sum256([]byte("weights"))
			digest := hex.EncodeToString(sum[:])
			for i, want := range []string{digest, digest, "", ""} {
				if o.Files[i].Path != host.Files[i] || o.Files[i].SHA256 != want {
					t.Errorf("file %q: %+v, want %s", host.Files[i], o.Files[i], want)
				}
			}
			// The installed binary observes the same fact later.
			if got, want := o.filesFact(), gates.FilesFact(host.Files); got != want {
				t.Errorf("the probe's fact of the files is %s, the binary's %s", got, want)
			}
			if o.BootID != process.BootID() {
				t.Errorf("boot id %q, want %q", o.BootID, process.BootID())
			}
			if o.OS != "Linux" || gates.Arch(o.OS, o.Machine) != runtime.GOOS+"/"+runtime.GOARCH || o.UID != os.Getuid() || !o.Writable || o.DiskFree <= 0 || o.CPUs < 1 || o.MemTotal <= 0 {
				t.Errorf("observed %+v", o)
			}
			if l := o.Limits; l.Files == Untold || l.Files == 0 || l.Locked == Untold {
				t.Errorf("limits %+v", l)
			}
			if !strings.Contains(fmt.Sprint(o.Listeners), l.Addr().String()) {
				t.Errorf("listeners %v, want %s among them", o.Listeners, l.Addr())
			}
		})
	}
}

// TestProbeOfAnExistingRoot judges the root itself, not the folder above it, which
// often belongs to somebody else.
func TestProbeOfAnExistingRoot(t *testing.T) {
	if os.Getuid() == 0 {
		if _, err := exec.LookPath("setpriv"); err != nil {
			t.Skip("needs setpriv to give root's rights up")
		}
	}
	base, err := os.MkdirTemp("", "narwhal-probe")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(base, 0o700); _ = os.RemoveAll(base) })
	root := filepath.Join(base, "root")
	if err := os.Mkdir(root, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(root, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(base, 0o555); err != nil {
		t.Fatal(err)
	}
	shell := []string{"sh"}
	if os.Getuid() == 0 {
		shell = []string{"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "sh"}
	}
	if o := probeHere(t, shell, "/", fleet.Host{Root: root}); !o.Writable {
		t.Error("a root that its user may write counts as read-only")
	}
	if o := probeHere(t, shell, "/", fleet.Host{Root: filepath.Join(base, "new")}); o.Writable {
		t.Error("a root that its user may not make counts as writable")
	}
}

// TestProbeWithoutTools runs the probe where neither ss nor ip is, as on a bare busybox.
func TestProbeWithoutTools(t *testing.T) {
	busybox, err := exec.LookPath("busybox")
	if err != nil || runtime.GOOS != "linux" {
		t.Skip("needs busybox")
	}
	bin := t.TempDir()
	for _, tool := range []string{"sh", "cat", "date", "df", "dirname", "head", "id", "nproc", "sed", "sha256sum", "stat", "tail", "tr", "uname"} {
		if err := os.Symlink(busybox, filepath.Join(bin, tool)); err != nil {
			t.Fatal(err)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	t.Setenv("PATH", bin)
	file := filepath.Join(t.TempDir(), "x")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	host := fleet.Host{Root: "/", Files: []string{file}}
	o := probeHere(t, []string{filepath.Join(bin, "sh")}, "/", host)
	if !strings.Contains(fmt.Sprint(o.Listeners), l.Addr().String()) {
		t.Errorf("listeners %v, want %s among them", o.Listeners, l.Addr())
	}
	if o.filesFact() != gates.FilesFact(host.Files) || o.CPUs < 1 || o.DiskFree <= 0 {
		t.Errorf("observed %+v", o)
	}
}
