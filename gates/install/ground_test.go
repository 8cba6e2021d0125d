package install

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/record"
)

const goodGround = `want linux/amd64
bytes 4096
machine Linux x86_64
user 1000 1000 ana ana
folder 1000 1000 755 /opt/n
free 4
inodes 1000 900
mount rw,relatime /opt
above 0 0 755 /opt
end
`

func codes(fs []record.Finding) string {
	var out []string
	for _, f := range fs {
		c := f.Code
		if f.Note {
			c += " noted"
		}
		out = append(out, c)
	}
	return strings.Join(out, ", ")
}

func TestGroundFaults(t *testing.T) {
	for name, c := range map[string]struct{ old, new, want string }{
		"good":                       {"", "", ""},
		"too little space":           {"free 4", "free 3", "release-space"},
		"space not told":             {"free 4\n", "", ""},
		"hostile space":              {"free 4", "free -1e9", ""},
		"the release is there":       {"free 4", "free 0\nthere 4096", ""},
		"another release is there":   {"free 4", "free 0\nthere 4095", "release-space"},
		"a half was sent":            {"free 4", "free 2\npart 2048", ""},
		"a part longer than all":     {"free 4", "free 0\npart 99999", ""},
		"no inodes":                  {"1000 900", "1000 3", "release-inodes"},
		"a file system without them": {"1000 900", "0 0", ""},
		"noexec":                     {"rw,relatime", "rw,nosuid,noexec", "root-noexec"},
		"read-only":                  {"rw,relatime", "ro,relatime", "root-read-only"},
		"another machine":            {"x86_64", "aarch64", "release-architecture"},
		"another system":             {"machine Linux", "machine FreeBSD", "release-architecture"},
		"no loader":                  {"free 4", "free 4\nloader missing /lib/ld.so", "release-not-static"},
		"a loader":                   {"free 4", "free 4\nloader there /lib/ld.so", "release-not-static noted"},
		"of another user":            {"folder 1000 1000 755", "folder 1001 1000 755", "root-owner"},
		"of root":                    {"folder 1000 1000 755", "folder 0 0 755", ""},
		"all may write":              {"folder 1000 1000 755", "folder 1000 1000 757", "root-writable-by-others"},
		"sticky, all may write":      {"folder 1000 1000 755", "folder 1000 1000 1777", "root-writable-by-others"},
		"the own group may write":    {"folder 1000 1000 755", "folder 1000 1000 775", ""},
		"a group may write":          {"folder 1000 1000 755", "folder 1000 100 775", "root-writable-by-others"},
		"a group of many":            {"1000 1000 ana ana\nfolder 1000 1000 755", "1000 1000 ana users\nfolder 1000 1000 775", "root-writable-by-others"},
		"above, all may write":       {"above 0 0 755", "above 0 0 777", "root-writable-by-others"},
		"above, sticky":              {"above 0 0 755", "above 0 0 1777", ""},
		"a host without stat":        {"folder 1000 1000 755", "folder - - -", ""},
		"closed":                     {"free 4", "closed /opt", "root-closed"},
		"no user":                    {"user 1000 1000 ana ana", "user", "install-answer-cut"},
		"cut":                        {"end\n", "", "install-answer-cut"},
		"more after the end":         {"end\n", "end\nfree 4\n", "install-answer-cut"},
		"words of a profile":         {"want linux", "Welcome!\nwant linux", ""},
		"too long":                   {"end\n", strings.Repeat("x\n", maxLines) + "end\n", "install-answer-cut"},
	} {
		text := goodGround
		if c.old != "" {
			text = strings.Replace(text, c.old, c.new, 1)
		}
		got := groundFaults([]byte(text))
		if codes(got) != c.want {
			t.Errorf("%s: found %q, want %q", name, codes(got), c.want)
		}
		for _, f := range got {
			if f.Message == "" || f.Hint == "" || f.Want == "" || f.Got == "" {
				t.Errorf("%s: %+v says too little", name, f)
			}
		}
		if halts := (Gate{}).Halts(groundKey("h"), []byte(text)) != ""; halts != (c.want != "" && !strings.HasSuffix(c.want, " noted")) {
			t.Errorf("%s: halts %v", name, halts)
		}
	}
}

// shells are the POSIX shells of this machine.
func shells(t *testing.T) [][]string {
	t.Helper()
	var out [][]string
	for _, s := range [][]string{{"sh"}, {"dash"}, {"bash", "--posix"}, {"busybox", "sh"}, {"mksh"}, {"zsh", "--emulate", "sh"}} {
		if _, err := exec.LookPath(s[0]); err == nil {
			out = append(out, s)
		}
	}
	return out
}

// run runs a script as a host does.
func run(t *testing.T, shell []string, script string, env ...string) string {
	t.Helper()
	cmd := exec.Command(shell[0], append(slices.Clone(shell[1:]), "-c", script)...)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", shell, err, out)
	}
	return string(out)
}

// TestGroundProbe looks at folders of this machine with each of its shells.
func TestGroundProbe(t *testing.T) {
	arch := runtime.GOOS + "/" + runtime.GOARCH
	small := gates.Binary{SHA256: digest("a"), Bytes: 10, Arch: arch}
	for _, shell := range shells(t) {
		base := t.TempDir()
		root := filepath.Join(base, "it's root", "narwhal")
		for name, c := range map[string]struct {
			make func()
			b    gates.Binary
			want string
		}{
			"no root yet":      {func() {}, small, ""},
			"a root":           {func() { mkdir(t, filepath.Join(root, "releases", digest("a")), 0o755) }, small, ""},
			"of another":       {func() {}, gates.Binary{SHA256: digest("a"), Bytes: 10, Arch: "linux/other"}, "release-architecture"},
			"no loader":        {func() {}, gates.Binary{SHA256: digest("a"), Arch: arch, Interp: "/lib/it's none.so"}, "release-not-static"},
			"too large":        {func() {}, gates.Binary{SHA256: digest("a"), Bytes: 1 << 52, Arch: arch}, "release-space"},
			"releases of all":  {func() { mkdir(t, filepath.Join(root, "releases"), 0o777) }, small, "root-writable-by-others"},
			"a folder of all":  {func() { mkdir(t, filepath.Dir(root), 0o777) }, small, "root-writable-by-others"},
			"a sticky one":     {func() { mkdir(t, filepath.Dir(root), 0o777|os.ModeSticky) }, small, ""},
			"of another owner": {func() { mkdir(t, root, 0o755); chown(t, root) }, small, "root-owner"},
		} {
			must(t, os.RemoveAll(filepath.Join(base, "it's root")))
			c.make()
			got := run(t, shell, groundProbe(root, c.b))
			if found := groundFaults([]byte(got)); codes(found) != c.want && !(name == "of another owner" && os.Getuid() != 0) {
				t.Errorf("%v, %s: found %q, want %q in\n%s", shell, name, codes(found), c.want, got)
			}
			for _, word := range []string{"free ", "user ", "above ", "machine "} {
				if !strings.Contains(got, "\n"+word) {
					t.Errorf("%v, %s: no line %s\n%s", shell, name, word, got)
				}
			}
			if runtime.GOOS == "linux" && !strings.Contains(got, "\nmount ") {
				t.Errorf("%v, %s: no mount\n%s", shell, name, got)
			}
		}
	}
}

// TestGroundProbeCountsWhatIsThere: what was sent before needs no space again.
func TestGroundProbeCountsWhatIsThere(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "releases", digest("a"))
	mkdir(t, dir, 0o755)
	must(t, os.WriteFile(filepath.Join(dir, ".narwhal-narwhal."+digest("a")[:16]+".part"), make([]byte, 300), 0o600))
	b := gates.Binary{SHA256: digest("a"), Bytes: 1 << 52}
	for _, shell := range shells(t) {
		if got := run(t, shell, groundProbe(root, b)); !strings.Contains(got, "\npart 300\n") {
			t.Errorf("%v: %s", shell, got)
		}
	}
	must(t, os.WriteFile(filepath.Join(dir, "narwhal"), make([]byte, 500), 0o600))
	b.Bytes = 500
	for _, shell := range shells(t) {
		if got := run(t, shell, groundProbe(root, b)); !strings.Contains(got, "\nthere 500\n") {
			t.Errorf("%v: %s", shell, got)
		}
	}
}

// TestGroundProbeSeesMounts mounts file systems that a release cannot lie on, in a
// namespace of its own.
func TestGroundProbeSeesMounts(t *testing.T) {
	if exec.Command("unshare", "-m", "true").Run() != nil {
		if os.Getenv("NARWHAL_REQUIRE_NETNS") == "1" {
			t.Fatal("mount namespaces are required and cannot be made")
		}
		t.Skip("needs root and mount namespaces")
	}
	dir := t.TempDir()
	for option, want := range map[string]string{"noexec": "root-noexec", "ro": "root-read-only", "ro,noexec": "root-read-only, root-noexec", "exec": "", "nr_inodes=5": "release-inodes", "size=64k": "release-space"} {
		for _, shell := range shells(t) {
			script := fmt.Sprintf("mount -t tmpfs -o mode=755,%s tmpfs %s && ", option, dir) + groundProbe(filepath.Join(dir, "a", "root"), gates.Binary{SHA256: digest("a"), Bytes: 1 << 20})
			got := run(t, append([]string{"unshare", "-m"}, shell...), script)
			if found := codes(groundFaults([]byte(got))); found != want {
				t.Errorf("%v, %s: found %q, want %q in\n%s", shell, option, found, want, got)
			}
		}
	}
}

func FuzzAnswers(f *testing.F) {
	f.Add(goodGround)
	f.Add("state held\nend\n")
	f.Add("digest sha256sum " + digest("a") + "\nruns yes\nend\n")
	f.Fuzz(func(t *testing.T, s string) {
		for _, fs := range [][]record.Finding{groundFaults([]byte(s)), lockFaults([]byte(s)), proofFaults([]byte(s), digest("a"), true), manifestFaults([]byte(s))} {
			for _, x := range fs {
				if text := fmt.Sprint(x.Message, x.Got, x.Hint); len(text) > 3000 || printable(text) != text {
					t.Errorf("finding %q", text)
				}
			}
		}
	})
}

func mkdir(t *testing.T, path string, mode os.FileMode) {
	t.Helper()
	must(t, os.MkdirAll(path, 0o755))
	must(t, os.Chmod(path, mode))
}

func chown(t *testing.T, path string) {
	t.Helper()
	if os.Getuid() == 0 {
		must(t, os.Chown(path, 12345, 0))
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
