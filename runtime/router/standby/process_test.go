package standby

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/router/lease"
)

const primaryEnv = "STANDBY_TEST_PRIMARY" // path of the lease, "short " before it for short times

// TestMain is also the primary that the tests kill.
func TestMain(m *testing.M) {
	if path := os.Getenv(primaryEnv); path != "" {
		if err := servePrimary(path); err != nil {
			fmt.Println(err)
		}
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// short keeps the test of an expiry short.
var short = lease.Timing{TTL: 900 * time.Millisecond, Renew: 150 * time.Millisecond, Margin: 300 * time.Millisecond}

var usual = lease.Timing{TTL: lease.DefaultTTL, Renew: lease.DefaultRenew, Margin: lease.DefaultMargin}

func fileLease(path, router string, t lease.Timing) (*lease.File, error) {
	return lease.NewFile(lease.FileOptions{Path: path, Holder: lease.NewHolder(router), TTL: t.TTL, Margin: t.Margin, Proof: lease.ProofOn})
}

// servePrimary holds the lease, answers the two routes, and counts an offered request at
// each handoff.
func servePrimary(path string) error {
	path, brief := strings.CutPrefix(path, "short ")
	times := map[bool]lease.Timing{true: short, false: usual}[brief]
	l, err := fileLease(path, "router-a", times)
	if err != nil {
		return err
	}
	term, err := l.Claim(context.Background())
	if err != nil {
		return err
	}
	k := lease.Keep(l, term, times.Renew)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	var mu sync.Mutex
	doc := NewDocument()
	doc.Epoch, doc.Holder = term.Epoch, term.Holder
	mux := http.NewServeMux()
	mux.HandleFunc("/ready", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{"status": "ready", "control_ready": k.Valid(), "epoch": term.Epoch, "holder": term.Holder})
	})
	mux.HandleFunc("/narwhal/handoff", func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		doc.Counters.Offered++
		b, _ := doc.Encode()
		_, _ = w.Write(b)
	})
	fmt.Printf("%s %d\n", listener.Addr(), term.Epoch)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // the test's end ends the primary
		os.Exit(1)
	}()
	return http.Serve(listener, mux)
}

// startPrimary returns the process and its base URL.
func startPrimary(t *testing.T, path string) (*exec.Cmd, string) {
	t.Helper()
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), primaryEnv+"="+path)
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = in.Close()
		_ = c.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	address, epoch, ok := strings.Cut(strings.TrimSpace(line), " ")
	if err != nil || !ok || epoch != "1" {
		t.Fatalf("primary: %q, %v", line, err)
	}
	return c, "http://" + address
}

// waiting is a local router that notes what it is told.
type waiting struct {
	mu     sync.Mutex
	did    []string
	stored chan Document // the newest
	last   Document
	opened chan *lease.Keeper
}

func (w *waiting) note(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.did = append(w.did, what)
}

func (w *waiting) Fits(Document) error { return nil }

func (w *waiting) Apply(_ context.Context, d Document) error { w.note("apply"); w.last = d; return nil }
func (w *waiting) Verify(context.Context) error              { w.note("verify"); return nil }
func (w *waiting) Open(k *lease.Keeper)                      { w.note("open"); w.opened <- k }
func (w *waiting) Block(string)                              {} // while the kernel still closes files
func (w *waiting) Store(d Document, _ time.Time) error {
	select {
	case <-w.stored:
	default:
	}
	w.stored <- d
	return nil
}

// follow runs a standby of a real primary until it has opened.
func follow(t *testing.T, path, base string, times lease.Timing) (*waiting, <-chan error) {
	t.Helper()
	own, err := fileLease(path, "router-b", times)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(own.Close)
	w := &waiting{stored: make(chan Document, 1), opened: make(chan *lease.Keeper, 1)}
	s, err := New(Options{Primary: base, Interval: DefaultInterval, Misses: DefaultMisses, MaxAge: DefaultMaxAge, Renew: times.Renew}, own, w)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Run(t.Context()) }()
	for d := range w.stored {
		if d.Counters.Offered >= 3 {
			break
		}
	}
	return w, ended
}

func (w *waiting) check(t *testing.T, k *lease.Keeper, ended <-chan error) {
	t.Helper()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if term := k.Term(); term.Epoch != 2 || !k.Valid() {
		t.Errorf("opened with %+v", term)
	}
	if w.last.Epoch != 1 || w.last.Counters.Offered < 3 {
		t.Errorf("applied %+v", w.last)
	}
	if want := []string{"apply", "verify", "open"}; !slices.Equal(w.did, want) {
		t.Errorf("did %q, want %q", w.did, want)
	}
}

// TestRow19KilledProcess kills a real primary with SIGKILL and measures until the standby opens:
// the reference takes 4.7 s.
func TestRow19KilledProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lease.json")
	primary, base := startPrimary(t, path)
	w, ended := follow(t, path, base, usual)
	killed := time.Now()
	if err := primary.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	k := <-w.opened
	gap := time.Since(killed)
	t.Logf("opened %v after the kill", gap)
	if gap > 2*time.Second {
		t.Errorf("the gap is %v", gap)
	}
	w.check(t, k, ended)
	if err := k.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestStoppedProcess freezes a primary: only its expiry lets the standby open, and when it
// goes on it knows that it may not serve.
func TestStoppedProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lease.json")
	primary, base := startPrimary(t, "short "+path)
	w, ended := follow(t, path, base, short)
	if err := primary.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	stopped := time.Now()
	k := <-w.opened
	gap := time.Since(stopped)
	t.Logf("opened %v after the stop", gap)
	if gap < short.Margin {
		t.Errorf("opened %v after a stop, while the primary was valid", gap)
	}
	w.check(t, k, ended)
	if err := primary.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	res, err := http.Get(base + "/ready")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var ready struct {
		Control bool `json:"control_ready"`
	}
	if err := json.NewDecoder(res.Body).Decode(&ready); err != nil || ready.Control {
		t.Errorf("the frozen primary says control_ready %v, %v", ready.Control, err)
	}
	if err := k.Release(t.Context()); err != nil {
		t.Error(err)
	}
}
