package discover

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"

	"github.com/narwhal-fleet/narwhal/gates/discover/answer"
)

func recorded(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestParse(t *testing.T) {
	huge := HugePages{16, 12, 2 << 20}
	for name, want := range map[string]Observation{
		"debian": {
			OS: "Linux", Kernel: "6.12.48+deb13-amd64", Machine: "x86_64", Hostname: "alpha-1", Distro: "Debian GNU/Linux 13 (trixie)",
			BootID: "0f3d2a41-9a52-4a52-8d8c-5f0f1b3f6c11", UID: 1001, User: "narwhal", CPUs: 64, CPUModel: "AMD EPYC 9334 32-Core Processor",
			MemTotal: 528211424 << 10, MemFree: 519040112 << 10, HugePages: huge, DiskFree: 1421287108 << 10, Writable: true,
			Listeners: []string{"0.0.0.0:22", "[::]:22"},
			Runtimes:  []string{"docker Docker version 28.5.1, build e180ab8"},
			Limits:    Limits{Locked: Unlimited, Files: 1048576, Tasks: 127000, Memory: 256 << 30, CPUs: 32, GroupIDs: 33000},
			Files: []File{
				{"/models/tern 7b/empty", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", "0 1764442262 131"},
				{"/models/tern 7b/none", "", ""},
				{"/models/not hashed", "", "12 1764442262 132"},
				{"/models/no stat", "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08", ""},
			},
		},
		"alpine": {
			OS: "Linux", Kernel: "6.6.117-0-lts", Machine: "aarch64", Hostname: "alpha-2", Distro: "Alpine Linux v3.22",
			BootID: "7d6b4f5c-2a8f-43b9-9a1e-1f9c2f1d0a77", User: "root", CPUs: 8, MemTotal: 16303028 << 10, MemFree: 15200000 << 10, HugePages: huge, DiskFree: 41982248 << 10, Writable: true,
			Listeners: []string{"0.0.0.0:22", "192.0.2.11:8080", "[::]:22", "[2001:db8::11]:8081"}, Runtimes: []string{},
			Limits: Limits{64 << 10, 1024, 127000, Untold, float64(Untold), Untold},
		},
		"macos": {
			OS: "Darwin", Kernel: "25.1.0", Machine: "arm64", Hostname: "studio.local", BootID: "1764000000123456", UID: 501, User: "ops", CPUs: 12,
			DiskFree: 459350180 << 10, Writable: true, Runtimes: []string{"podman podman version 5.7.0"},
			Limits: Limits{Unlimited, 256, 127000, Untold, float64(Untold), Untold},
		},
	} {
		got, err := Parse(recorded(t, name))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: -want +got\n%s", name, d)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	good := string(recorded(t, "debian"))
	for name, c := range map[string]struct{ in, want string }{
		"nothing":           {"", "cut off"},
		"no section":        {"hello\n", "cut off"},
		"a cut answer":      {good[:len(good)/2], "cut off"},
		"its last line cut": {strings.TrimSuffix(good, "== end\n"), "cut off"},
		"half of its end":   {strings.TrimSuffix(good, "end\n"), "cut off"},
		"a section twice":   {strings.Replace(good, "== runtimes", "== os", 1), "stands twice"},
		"no user":           {strings.Replace(good, "1001\n", "\n", 1), "user id"},
		"no system":         {strings.Replace(good, "Linux\n", "\n", 1), "missing"},
		"no boot id":        {strings.Replace(good, "0f3d2a41-9a52-4a52-8d8c-5f0f1b3f6c11\n", "", 1), "missing"},
		"a huge line":       {strings.Replace(good, "alpha-1", strings.Repeat("a", 2<<20), 1), "too long"},
		"many lines":        {strings.Replace(good, "== end", strings.Repeat("x\n", answer.MaxLines)+"== end", 1), "more than"},
		"NUL":               {"\x00", "cut off"},
	} {
		_, err := Parse([]byte(c.in))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
		if err != nil && len(err.Error()) > 200 {
			t.Errorf("%s: the error has %d bytes", name, len(err.Error()))
		}
	}
}

func TestParseDropsControlCharacters(t *testing.T) {
	hostile := bytes.Replace(recorded(t, "debian"), []byte("narwhal"), []byte("nar\x1b[31mwhal\x9b\xff\u202e"), 1)
	o, err := Parse(hostile)
	if err != nil {
		t.Fatal(err)
	}
	if o.User != "narwhal" {
		t.Errorf("user %q", o.User)
	}
}

// TestFilesFactOfNothing has the words that the installed binary uses.
func TestFilesFactOfNothing(t *testing.T) {
	if got := (Observation{}).filesFact(); got != "none" {
		t.Errorf("got %q", got)
	}
}

func FuzzParse(f *testing.F) {
	for _, name := range []string{"debian", "alpine", "macos"} {
		f.Add(recorded(f, name))
	}
	f.Add([]byte("== end"))
	f.Add([]byte("== disk\n% % %\n== listeners\nhex :\nhex 0:0\n== files\n    \n== os\na\nb\nc\n== boot\nx\n== user\n0\n== end\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		o, err := Parse(b)
		if err != nil {
			return
		}
		if o.BootID == "" || o.Machine == "" || o.DiskFree < 0 || o.MemTotal < 0 {
			t.Errorf("accepted %+v", o)
		}
		for _, s := range []string{o.OS, o.User, o.Hostname, o.BootID, o.Machine, fmt.Sprint(o.Runtimes, o.Listeners)} {
			if strings.IndexFunc(s, unicode.IsControl) >= 0 && !strings.Contains(s, "\t") {
				t.Errorf("control characters in %q", s)
			}
		}
		for _, file := range o.Files {
			if file.SHA256 != "" && !digestRE.MatchString(file.SHA256) {
				t.Errorf("digest %q", file.SHA256)
			}
		}
		o.filesFact()
	})
}
