package simulated

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/engine"
	"github.com/narwhal-fleet/narwhal/runtime/engine/simulated/core"
)

type ears struct{ tokens, ends int }

func (e *ears) Token(*core.Seq, int32, time.Time) bool { e.tokens++; return false }
func (e *ears) Fetch(*core.Seq, core.Fetch)            {}
func (e *ears) Done(*core.Seq, core.Result, time.Time) { e.ends++ }

// The loop needs no caller to move: its one timer drives steps and leases, and rests after.
func TestLoopDrivesStepsAndLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := New(testConfig())
		if err != nil {
			t.Fatal(err)
		}
		e := &ears{}
		s.with(func(now time.Time) {
			err = s.core.Submit(now, &core.Seq{ID: "a", Prompt: []int32{1, 2, 3}, MaxTokens: 5, Export: true, Sink: e})
		})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if e.tokens != 5 || e.ends != 1 || s.State().Pins != 1 {
			t.Fatal(e, s.State())
		}
		time.Sleep(28 * time.Second)
		synctest.Wait()
		if s.State().Pins != 1 {
			t.Fatal("lease ended early")
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if s.State().Pins != 0 {
			t.Fatal("lease did not end")
		}
		s.mu.Lock()
		armed := s.timer.Stop()
		s.mu.Unlock()
		if armed {
			t.Fatal("an idle engine has a timer")
		}
	})
}

func TestServeAnnouncesAndEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, testConfig(), w); w.Close() }()
	var hello struct {
		Ready    bool
		URL      string
		SidePort int    `json:"side_port"`
		EngineID string `json:"engine_id"`
	}
	if err := json.NewDecoder(r).Decode(&hello); err != nil || !hello.Ready || hello.SidePort == 0 || hello.EngineID == "" {
		t.Fatal(hello, err)
	}
	c, err := engine.NewClient(hello.URL, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Health(limited(t)); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if c.Health(limited(t)) == nil {
		t.Fatal("the port still answers")
	}
}

func TestServeReportsDeath(t *testing.T) {
	r, w := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- Serve(t.Context(), testConfig(), w); w.Close() }()
	var hello struct{ URL string }
	if err := json.NewDecoder(r).Decode(&hello); err != nil {
		t.Fatal(err)
	}
	c, _ := engine.NewClient(hello.URL, engine.Options{})
	defer c.Close()
	if err := c.PostJSON(limited(t), "/simulated/inject", Injection{Kind: "core-death"}, nil); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, ErrCoreDied) {
		t.Fatal(err)
	}
}

func TestReadConfig(t *testing.T) {
	cfg, err := ReadConfig(strings.NewReader(`{"model":"m","listen":"127.0.0.1:0","block_size":8,"shutdown_timeout":"3s","failure_control":true}`))
	if err != nil || cfg.Model != "m" || cfg.BlockSize != 8 || cfg.ShutdownTimeout.D() != 3*time.Second || !cfg.FailureControl {
		t.Fatalf("%+v %v", cfg, err)
	}
	for _, in := range []string{``, `{"modell":"m"}`, `{} {}`, `{"model":3}`} {
		if _, err := ReadConfig(strings.NewReader(in)); err == nil {
			t.Errorf("%q accepted", in)
		}
	}
	for _, c := range []Config{{}, {Model: "m", SideChannel: "nonsense"}} {
		if _, err := New(c); err == nil {
			t.Errorf("%+v accepted", c)
		}
	}
}

func TestControlRoutesStayShut(t *testing.T) {
	_, c := boot(t, func(cfg *Config) { cfg.FailureControl = false })
	var se *engine.StatusError
	if err := c.PostJSON(limited(t), "/simulated/inject", Injection{Kind: "kill"}, nil); !errors.As(err, &se) || se.Status != 404 {
		t.Fatal(err)
	}
	if err := c.PostJSON(limited(t), "/pause", nil, nil); !errors.As(err, &se) || se.Status != 404 {
		t.Fatal(err)
	}
}

func TestPausedEngineLooksIdle(t *testing.T) {
	s, c := boot(t, func(cfg *Config) { cfg.DevMode = true })
	if err := c.PostJSON(limited(t), "/pause?mode=wait", nil, nil); err != nil {
		t.Fatal(err)
	}
	got := make(chan error, 1)
	go func() {
		_, err := c.CompleteBody(limited(t), []byte(`{"prompt":"x"}`), "")
		got <- err
	}()
	until(t, "the request's arrival", func() bool { return s.State().Calls == 1 })
	m, err := c.Metrics(limited(t))
	if err != nil {
		t.Fatal(err)
	}
	if w, _ := m.Sum("vllm:num_requests_waiting"); w != 0 || c.Health(limited(t)) != nil {
		t.Fatal("a pause shows")
	}
	if err := c.PostJSON(limited(t), "/resume", nil, nil); err != nil {
		t.Fatal(err)
	}
	if err := <-got; err != nil {
		t.Fatal(err)
	}
}

func TestHeartbeatsKeepAPin(t *testing.T) {
	p, pc := boot(t, func(c *Config) { c.LeaseS = 0.6 })
	d, dc := boot(t, func(c *Config) { c.LeaseS = 0.6; c.TransferS = 1.5 })
	body := `{` + long + `,"max_tokens":4}`
	if _, err := leg2(t, dc, body, leg1(t, pc, body)); err != nil {
		t.Fatal(err)
	}
	p.mu.Lock()
	late, expired := p.core.Stats.LateNotices, p.core.Stats.Expired
	p.mu.Unlock()
	d.Stop() // waits for the notice
	if late != 0 || expired != 0 {
		t.Fatalf("%d late, %d expired", late, expired)
	}
}

func TestAppendString(t *testing.T) {
	for _, s := range []string{"", "plain", "a\"b\\c\nd\te\x01", "é🐋", "bad\xffend", "\xff"} {
		var back string
		if err := json.Unmarshal(appendString(nil, s), &back); err != nil || back != strings.ToValidUTF8(s, "\ufffd") {
			t.Errorf("%q became %q, %v", s, back, err)
		}
	}
}

func FuzzRequest(f *testing.F) {
	for _, s := range []string{`{"prompt":"x"}`, `{"prompt":[1],"kv_transfer_params":{"do_remote_prefill":true,"remote_block_ids":[[1]]}}`,
		`{"messages":[{"role":"user","content":[{"text":"a"}]}],"stop":["a"],"n":2}`, `{"logit_bias":{"1":2},"stream_options":{}}`} {
		f.Add([]byte(s))
	}
	f.Add([]byte(`{"prompt":"x","bootstrap_host":"h","bootstrap_port":1,"bootstrap_room":9223372036854775807,"rid":"r"}`))
	var servers []*Server
	for _, role := range []string{"", "prefill", "decode"} {
		cfg := testConfig()
		if cfg.Role = role; role != "" {
			cfg.Dialect = dialectSGLang
		}
		s, err := New(cfg)
		if err != nil {
			f.Fatal(err)
		}
		servers = append(servers, s)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		for i, s := range servers {
			for _, chat := range []bool{false, true} {
				fields, bad := readFields(body)
				if bad != nil {
					return
				}
				p, bad := s.readParams(fields, chat)
				if bad == nil && (p.maxTokens < 1 || len(p.prompts) == 0 || p.n < 1 || (p.meet == nil) != (i == 0)) {
					t.Fatalf("%s passed as %+v", body, p)
				}
			}
		}
	})
}

// BenchmarkStream reports the whole process's CPU per event, client included.
func BenchmarkStream(b *testing.B) {
	cfg := testConfig()
	cfg.DecodeD, cfg.MaxNumSeqs, cfg.Blocks = 0.004, 64, 64*129
	s, err := New(cfg)
	if err != nil {
		b.Fatal(err)
	}
	if err := s.Start(b.Context()); err != nil {
		b.Fatal(err)
	}
	defer s.Stop()
	c, _ := engine.NewClient(s.URL(), engine.Options{})
	const streams = 32
	var events, wg = 0, sync.WaitGroup{}
	var mu sync.Mutex
	before := cpu()
	for b.Loop() {
		for i := range streams {
			wg.Go(func() {
				resp, err := c.Do(b.Context(), "/v1/completions", fmt.Appendf(nil, `{"prompt":"number %d","max_tokens":250,"stream":true}`, i), "")
				if err != nil {
					b.Error(err)
					return
				}
				defer resp.Body.Close()
				got, _ := io.ReadAll(resp.Body)
				mu.Lock()
				events += bytes.Count(got, []byte("data: "))
				mu.Unlock()
			})
		}
		wg.Wait()
	}
	b.ReportMetric(float64((cpu()-before).Microseconds())/float64(events), "cpu-µs/event")
}

func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
