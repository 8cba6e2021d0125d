package discover

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/fleet/remote"
	"github.com/narwhal-fleet/narwhal/gates"
)

// here is this machine as a host. Before, if set, runs ahead of each script.
type here struct {
	gates.Host
	before  func(script string)
	scripts []string
	clock   []string // what date would say, one a look
}

func (h *here) Run(ctx context.Context, c remote.Command) (remote.Result, error) {
	h.scripts = append(h.scripts, c.Script)
	if h.before != nil {
		h.before(c.Script)
	}
	if c.Script == clockScript && len(h.clock) > 0 {
		said := h.clock[0]
		h.clock = h.clock[1:]
		return remote.Result{Stdout: []byte(said)}, nil
	}
	cmd := exec.CommandContext(ctx, "sh", "-c", c.Script)
	cmd.Stdin = bytes.NewReader(c.Stdin)
	out, err := cmd.Output()
	return remote.Result{Stdout: out}, err
}

// env is what a local step sees.
type env struct {
	gates.Env
	host *here
	dir  string
}

func (e env) Host(context.Context, string) (gates.Host, error) { return e.host, nil }
func (e env) RunDir() string                                   { return e.dir }
func (e env) Progress(string)                                  {}

func checkpoint(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"config.json": "{\"model_type\": \"tiny\",\n \"torch_dtype\": \"bfloat16\"}", "w 1.safetensors": strings.Repeat("w", 5000), "sub/é.bin": "é", "README.md": "read me",
		".cache/huggingface/x": "x", "empty": "", "sub/README.md": "kept",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("w 1.safetensors", filepath.Join(dir, "w 2.safetensors")); err != nil {
		t.Fatal(err)
	}
	return dir
}

func readHere(t *testing.T, e env, anew bool, dirs ...string) Checkpoints {
	t.Helper()
	args, err := json.Marshal(treeArgs{Host: "h1", Dirs: dirs, Anew: anew})
	if err != nil {
		t.Fatal(err)
	}
	b, err := readTrees(t.Context(), e, args)
	if err != nil {
		t.Fatal(err)
	}
	c, err := decode[Checkpoints](b)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestReadTrees(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("uses GNU or busybox stat")
	}
	dir := checkpoint(t)
	e := env{host: &here{}, dir: filepath.Join(t.TempDir(), "runs", "r")}
	c := readHere(t, e, false, dir)
	tr := c.Trees[0]
	if tr.Model.Count != 6 || !tr.Model.Whole() || tr.Cached != 0 || tr.Config.Type != "tiny" || tr.Config.Dtype != "bfloat16" || tr.NoConfig != "" || len(tr.Odd)+len(tr.Unread)+len(tr.Moved) > 0 {
		t.Fatalf("%+v", tr)
	}
	for _, f := range tr.Model.Files {
		b, err := os.ReadFile(filepath.Join(dir, f.Path))
		sum := sha256.Sum256(b)
		if err != nil || f.SHA256 != hex.EncodeToString(sum[:]) || f.Size != int64(len(b)) {
			t.Errorf("%+v, %v", f, err)
		}
	}
	// The installed binary observes the same fact later.
	if got, want := c.fact(), gates.TreesFact([]string{dir}); got != want {
		t.Errorf("the step's fact is %s, the binary's %s", got, want)
	}
	if got, want := (Checkpoints{[]Tree{{Dir: "/none"}}}).fact(), gates.TreesFact([]string{"/none"}); got != want {
		t.Errorf("an absent folder is %s, the binary's %s", got, want)
	}

	// A second look reads nothing; one with another file reads that one.
	if again := readHere(t, e, false, dir).Trees[0]; again.Cached != 6 || again.Read != 0 || again.Model.Root != tr.Model.Root {
		t.Errorf("%+v", again)
	}
	if anew := readHere(t, e, true, dir).Trees[0]; anew.Cached != 0 || anew.Model.Root != tr.Model.Root {
		t.Errorf("%+v", anew)
	}
	if err := os.WriteFile(filepath.Join(dir, "w 1.safetensors"), []byte(strings.Repeat("v", 5000)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(filepath.Join(dir, "w 1.safetensors"), time.Now(), time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if changed := readHere(t, e, false, dir).Trees[0]; changed.Cached != 4 || changed.Read != 10000 || changed.Model.Root == tr.Model.Root {
		t.Errorf("%+v", changed)
	}
	if gone := readHere(t, e, false, dir+"/none").Trees[0]; !gone.Absent {
		t.Errorf("%+v", gone)
	}
}

func TestReadTreesOfOddities(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("uses GNU or busybox stat")
	}
	dir := checkpoint(t)
	for _, link := range []string{"nowhere", "config.json.lock"} {
		if err := os.Symlink("/none/"+link, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, `a\b`), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	e := env{host: &here{}, dir: filepath.Join(t.TempDir(), "runs", "r")}
	if tr := readHere(t, e, false, dir).Trees[0]; len(tr.Odd) != 3 {
		t.Errorf("odd %q", tr.Odd)
	}

	// A name of two lines is no line of the listing.
	bad := checkpoint(t)
	if err := os.WriteFile(filepath.Join(bad, "two\nlines"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readTrees(t.Context(), e, []byte(fmt.Sprintf(`{"host":"h1","dirs":[%q]}`, bad))); err == nil {
		t.Error("a name of two lines is accepted")
	}

	// A file that grows while it is read.
	moving := checkpoint(t)
	e.host.before = func(script string) {
		if strings.Contains(script, "xargs") {
			if err := os.WriteFile(filepath.Join(moving, "config.json"), []byte("{}"), 0o600); err != nil {
				t.Error(err)
			}
		}
	}
	if tr := readHere(t, e, false, moving).Trees[0]; len(tr.Moved) != 1 || tr.Moved[0] != "config.json" {
		t.Errorf("moved %q", tr.Moved)
	}
	e.host.before = func(script string) {
		if strings.Contains(script, "xargs") {
			if err := os.Remove(filepath.Join(moving, "empty")); err != nil && !os.IsNotExist(err) {
				t.Error(err)
			}
		}
	}
	if tr := readHere(t, e, true, moving).Trees[0]; len(tr.Moved) != 1 || len(tr.Unread) != 1 {
		t.Errorf("moved %q, unread %q", tr.Moved, tr.Unread)
	}
}

func TestClock(t *testing.T) {
	look := func(limit time.Duration, said ...string) (Clock, int) {
		t.Helper()
		h := &here{clock: said}
		args, err := json.Marshal(clockArgs{Host: "h1", Limit: fleet.Duration(limit)})
		if err != nil {
			t.Fatal(err)
		}
		b, err := lookAtClock(t.Context(), env{host: h}, args)
		if err != nil {
			t.Fatal(err)
		}
		c, err := decode[Clock](b)
		if err != nil {
			t.Fatal(err)
		}
		return c, len(h.scripts)
	}
	if c, n := look(10 * time.Second); math.Abs(c.Offset) > c.Error || n != 1 {
		t.Errorf("this machine against itself: %+v after %d looks", c, n)
	}
	late := fmt.Sprintf("%d.5", time.Now().Add(time.Hour).Unix())
	if c, _ := look(time.Second, late, late, late, late, late); math.Abs(c.Offset-3600) > 5 {
		t.Errorf("an hour ahead: %+v", c)
	}
	whole := fmt.Sprint(time.Now().Unix())
	if c, n := look(500*time.Millisecond, whole, whole, whole, whole, whole); n != clockSamples || c.Error < 0.5 {
		t.Errorf("a clock of whole seconds: %+v after %d looks", c, n)
	}
	for _, bad := range []string{"", "noon", "NaN", "Inf", "1e300", "-5", "99999999999999999999"} {
		if _, err := lookAtClock(t.Context(), env{host: &here{clock: []string{bad}}}, []byte(`{"host":"h1"}`)); err == nil && bad != "" {
			t.Errorf("a clock that says %q is accepted", bad)
		}
	}
}

// TestSample: the true offset lies within the error, wherever in the round trip the host
// looked.
func TestSample(t *testing.T) {
	before := time.Unix(1764442262, 0)
	after := before.Add(200 * time.Millisecond)
	for _, at := range []time.Duration{0, 50 * time.Millisecond, 200 * time.Millisecond} {
		told := float64(before.Add(at).UnixNano())/1e9 + 3
		if s := sample(before, after, told, 1e-9); math.Abs(s.Offset-3) > s.error()+1e-6 {
			t.Errorf("looked after %s: %+v", at, s)
		}
	}
}

func FuzzClock(f *testing.F) {
	for _, s := range []string{"1764442262.123456789", "1764442262.N", "1764442262", "x", "-1", "1."} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, r, err := clock(s)
		if err == nil && !(n >= 0 && n < 1<<41 && r >= 0 && r <= 1) {
			t.Errorf("%q is %f ± %f", s, n, r)
		}
	})
}

func FuzzProbes(f *testing.F) {
	for _, name := range []string{"debian", "hardware", "amd", "network"} {
		f.Add(recorded(f, name))
	}
	f.Add([]byte("== image-0\nsha256:x []\n-- status 0\n== end\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		w := healthy(t)
		w.host["h1"], w.hardware["h1"], w.network["h1"], w.images["h1"] = string(b), string(b), string(b), string(b)
		for _, x := range (Gate{}).Judge(w.view()) {
			if strings.ContainsFunc(x.Message+x.Got+x.Want+x.Hint, unicode.IsControl) || len(x.Message) > 20000 {
				t.Errorf("finding %q", x.Message)
			}
		}
	})
}

// BenchmarkCheckpoint reads eight files of 64 MiB from the page cache with the host's own
// tools; bytes/s are to be compared with BenchmarkDigest, which is the limit wherever it is less
// than BenchmarkPageCache. On a shared machine of two EPYC cores with SHA extensions (load 1 to 3):
// 1.1 to 1.4 GB/s here, 1.3 to 1.7 hashed in memory, 7.9 to 8.5 read and thrown away. So four
// fifths of the hash's rate are reached, and those of the page cache's are out of SHA-256's reach:
// 512 MiB take 0.39 s of a processor, of which 0.31 are the hash and 0.05 the reading.
func BenchmarkCheckpoint(b *testing.B) {
	dir, e := shards(b), env{host: &here{}, dir: filepath.Join(b.TempDir(), "runs", "r")}
	args := []byte(fmt.Sprintf(`{"host":"h1","dirs":[%q],"anew":true}`, dir))
	b.SetBytes(8 << 26)
	for b.Loop() {
		if _, err := readTrees(b.Context(), e, args); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkPageCache is how fast the same files can be read at all.
func BenchmarkPageCache(b *testing.B) {
	dir := shards(b)
	b.SetBytes(8 << 26)
	for b.Loop() {
		if err := exec.Command("sh", "-c", "cat "+remote.Quote(dir)+"/* >/dev/null").Run(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkDigest is how fast all processors together hash what lies in memory.
func BenchmarkDigest(b *testing.B) {
	block := bytes.Repeat([]byte("narwhal "), 1<<17)
	b.SetBytes(int64(len(block)))
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			sha256.Sum256(block)
		}
	})
}

func shards(b *testing.B) string {
	b.Helper()
	dir := b.TempDir()
	block := bytes.Repeat([]byte("narwhal "), 1<<23)
	for i := range 8 {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), block, 0o600); err != nil {
			b.Fatal(err)
		}
	}
	return dir
}
