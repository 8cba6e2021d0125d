package router

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/pprof"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/runtime/engine"
	"github.com/narwhal-fleet/narwhal/runtime/profile"
)

// The data path is measured as processes of their own: a stub engine, the thing that stands
// between (this router, a bare net/http relay of two legs, a TCP splice) and the load here.
// CPU is that of the middle process, from the scheduler's account of its threads.

const roleEnv = "NARWHAL_BENCH_ROLE"

func TestMain(m *testing.M) {
	role := os.Getenv(roleEnv)
	if role == "" {
		os.Exit(judgeErrors(m.Run()))
	}
	if file := os.Getenv("NARWHAL_BENCH_PROFILE"); file != "" && role == "router" {
		f, err := os.Create(file)
		if err != nil || pprof.StartCPUProfile(f) != nil {
			panic("no profile")
		}
		defer pprof.StopCPUProfile()
	}
	switch role {
	case "stub":
		l := mustListen()
		announce(l.Addr().String())
		go newStub(fmt.Sprintf("c6e8847c-c16c-42be-9b16-%012d", os.Getpid())).serve(l)
	case "stubs":
		var all []string
		for i := range 64 {
			l := mustListen()
			all = append(all, l.Addr().String())
			go newStub(fmt.Sprintf("c6e8847c-c16c-42be-9b16-%06d%06d", os.Getpid(), i)).serve(l)
		}
		announce(strings.Join(all, ","))
	case "router":
		benchRouter(strings.Split(os.Getenv("NARWHAL_BENCH_ENGINES"), ","))
	case "relay":
		benchRelay(strings.Split(os.Getenv("NARWHAL_BENCH_ENGINES"), ","))
	case "splice":
		benchSplice(strings.Split(os.Getenv("NARWHAL_BENCH_ENGINES"), ",")[1])
	}
	_, _ = io.Copy(io.Discard, os.Stdin) // until the parent goes
}

func mustListen() net.Listener {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	return l
}

func announce(addr string) { fmt.Println(addr) }

// benchFleet is an open fleet over stubs: the first half prefills.
func benchFleet(addrs []string) Config {
	cfg := Config{Fleet: fleetDoc(), Listen: "127.0.0.1:0"}
	f := &cfg.Fleet
	f.Serving.Admission, f.Serving.MaxConnections, f.Serving.MaxRequestBytes, f.Serving.MaxResponseBytes = "open", 20000, 8<<20, 64<<20
	f.Serving.RequestTimeoutS, f.Engine.DecodeReadTimeoutS, f.Engine.Tokenize = 600, 300, false
	f.Controller.MonitorIntervalS, f.Controller.Advisory = 1, true
	curve := curveOf(quick())
	curve.MaxRequests, curve.MaxKVTokens = 1<<20, 1<<40
	var rows []profile.Row
	for i, a := range addrs {
		e := fleet.Engine{IID: fmt.Sprintf("p%d", i), URL: "http://" + a, Role: fleet.RolePrefill, Pin: true}
		if i >= (len(addrs)+1)/2 {
			e.IID, e.Role = fmt.Sprintf("d%d", i), fleet.RoleDecode
		}
		f.Engines = append(f.Engines, e)
		rows = append(rows, profile.NewRow(e.IID, IdentityDigest(engine.Identity{Version: "0.32.0", ProcessStart: 1764430000.5}), curve, profile.Report{}))
	}
	cfg.Profiles = profile.NewStore(nil, rows...)
	return cfg
}

func benchRouter(addrs []string) {
	cfg := benchFleet(addrs)
	if j := os.Getenv("NARWHAL_BENCH_JOURNAL"); j != "" {
		cfg.JournalPath = j
	}
	r, err := New(cfg)
	if err == nil {
		err = r.Start(context.Background())
	}
	if err != nil {
		panic(err)
	}
	announce(r.Addr())
}

// benchRelay is the least that a net/http program does for two legs.
func benchRelay(addrs []string) {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 4096, DisableCompression: true}}
	leg := func(ctx context.Context, addr string, body []byte) (*http.Response, error) {
		q, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+addr+"/v1/completions", bytes.NewReader(body))
		if err != nil {
			return nil, err
		}
		q.Header.Set("Content-Type", "application/json")
		return client.Do(q)
	}
	serve := func(w http.ResponseWriter, q *http.Request) error {
		body, err := io.ReadAll(q.Body)
		if err != nil || len(body) == 0 {
			return errors.New("no body")
		}
		open := body[:len(body)-1]
		one, err := leg(q.Context(), addrs[0], append(bytes.Clone(open), `,"max_tokens":1,"stream":false,"kv_transfer_params":{"do_remote_decode":true}}`...))
		if err != nil {
			return err
		}
		raw, err := io.ReadAll(one.Body)
		one.Body.Close()
		if err != nil {
			return err
		}
		_, after, _ := bytes.Cut(raw, []byte(`"kv_transfer_params":`))
		two := append(bytes.Clone(open), `,"kv_transfer_params":`...)
		resp, err := leg(q.Context(), addrs[1], append(two, after...))
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		w.Header().Set("Content-Type", resp.Header.Get("Content-Type"))
		buf := make([]byte, 32<<10)
		for {
			n, err := resp.Body.Read(buf)
			if n > 0 {
				_, _ = w.Write(buf[:n])
				w.(http.Flusher).Flush()
			}
			if err != nil {
				return nil
			}
		}
	}
	l := mustListen()
	announce(l.Addr().String())
	go func() {
		_ = http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			if err := serve(w, q); err != nil {
				http.Error(w, err.Error(), http.StatusBadGateway)
			}
		}))
	}()
}

// benchSplice copies TCP to the decode engine: one leg, no HTTP.
func benchSplice(addr string) {
	l := mustListen()
	announce(l.Addr().String())
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			up, err := net.Dial("tcp", addr)
			if err != nil {
				panic(err)
			}
			go func() { _, _ = io.Copy(up, c); up.Close() }()
			go func() { _, _ = io.Copy(c, up); c.Close() }()
		}
	}()
}

// child is one process of the measurement.
type child struct {
	cmd  *exec.Cmd
	addr string
}

func spawn(tb testing.TB, role string, engines []string, env ...string) *child {
	tb.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(append(os.Environ(), roleEnv+"="+role, "NARWHAL_BENCH_ENGINES="+strings.Join(engines, ",")), env...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		in.Close() // the child ends with its standard input
		late := time.AfterFunc(10*time.Second, func() { _ = cmd.Process.Kill() })
		defer late.Stop()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		tb.Fatalf("%s did not start: %v", role, err)
	}
	return &child{cmd, strings.TrimSpace(line)}
}

// cpu is the time that all threads of the process ran.
func (c *child) cpu(tb testing.TB) time.Duration {
	tb.Helper()
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", c.cmd.Process.Pid))
	var total int64
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		n, err := strconv.ParseInt(strings.Fields(string(b))[0], 10, 64)
		if err == nil {
			total += n
		}
	}
	if total == 0 {
		tb.Skip("this kernel keeps no scheduler statistics")
	}
	return time.Duration(total)
}

// rss is the resident memory in bytes.
func (c *child) rss(tb testing.TB) int64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.cmd.Process.Pid))
	if err != nil {
		tb.Skip("no /proc")
	}
	_, after, _ := strings.Cut(string(b), "VmRSS:")
	n, _ := strconv.ParseInt(strings.Fields(after)[0], 10, 64)
	return n << 10
}

// caller is one client connection that reads no more of an answer than where it ends.
type caller struct {
	c    net.Conn
	r    *bufio.Reader
	wire []byte
}

func dialCaller(tb testing.TB, addr, body string) *caller {
	tb.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { c.Close() })
	wire := fmt.Appendf(nil, "POST /v1/completions HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", addr, len(body), body)
	return &caller{c, bufio.NewReaderSize(c, 64<<10), wire}
}

// call sends the request and reads the answer; first is when its first body byte came.
func (k *caller) call() (first time.Duration, err error) {
	start := time.Now()
	if _, err := k.c.Write(k.wire); err != nil {
		return 0, err
	}
	resp, err := http.ReadResponse(k.r, nil)
	if err != nil {
		return 0, err
	}
	var b [512]byte
	n, err := resp.Body.Read(b[:])
	first = time.Since(start)
	if err != nil && err != io.EOF || n == 0 {
		return first, fmt.Errorf("empty answer: %v", err)
	}
	_, err = io.Copy(io.Discard, resp.Body)
	if err == nil && resp.StatusCode != 200 {
		err = fmt.Errorf("status %d: %s", resp.StatusCode, b[:n])
	}
	return first, err
}
