package router

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/engine/sglang"
	"github.com/narwhal-fleet/narwhal/runtime/engine/simulated"
	"github.com/narwhal-fleet/narwhal/runtime/journal"
)

// A complete answer does not wait for a prefill engine that has sent its KV and stands still.
func TestCompleteAnswerLeavesThePrefillLeg(t *testing.T) {
	for _, complete := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			done := make(chan *failure, 1)
			go func() {
				select {
				case <-ctx.Done():
				case <-time.After(time.Minute):
				}
				done <- &failure{detail: "late"}
			}()
			began := time.Now()
			f := (&request{}).prefillEnds(complete, done, cancel)
			if took := time.Since(began); complete != (f == nil) || complete != (took == pairTail) {
				t.Errorf("complete %v: %v after %s", complete, f, took)
			}
		})
	}
}

// SGLang's metrics do not tell when the process began: its engine is asked.
func TestSGLangIdleRestartIsNoticed(t *testing.T) {
	b := sglangBedOf(t, unswept, "prefill", "decode")
	if c := b.swept("e1"); c != "" {
		t.Errorf("the same process: %q", c)
	}
	b.restart("e1", func(c *simulated.Config) {
		c.Dialect, c.SGLang = sglang.Name, simulated.SGLang{Role: "decode", RoleSwitch: true}
	})
	if c := b.swept("e1"); c != causeIdentity {
		t.Errorf("another process: %q", c)
	}
}

// A prefill leg that answers with what is no answer ends its sibling, which waits for KV, at once.
func TestSGLangPrefillLegIsJudged(t *testing.T) {
	for name, answer := range map[string]string{
		"no JSON":          "<html>moved</html>",
		"an error":         `{"error":{"message":"KV transfer failed","code":500}}`,
		"an aborted leg":   `{"choices":[{"index":0,"text":"","finish_reason":"abort"}]}`,
		"no choice":        `{"object":"text_completion"}`,
		"a bare error":     `{"object":"error","message":"out of memory","code":500}`,
		"nothing":          ``,
		"a list of errors": `[{"error":"x"}]`,
	} {
		t.Run(name, func(t *testing.T) {
			b := sglangBedOf(t, func(c *Config) {
				to, err := url.Parse(c.Fleet.Engines[0].URL)
				if err != nil {
					t.Fatal(err)
				}
				through := httputil.NewSingleHostReverseProxy(to)
				lies := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path != "/v1/completions" {
						through.ServeHTTP(w, r)
						return
					}
					w.Header().Set("Content-Type", "application/json")
					_, _ = io.WriteString(w, answer)
				}))
				t.Cleanup(lies.Close)
				c.Fleet.Engines[0].URL = lies.URL
				c.Fleet.Engine.FirstTokenTimeoutS = 600
				c.Fleet.Serving.RequestTimeoutS = 600
				unswept(c)
			}, "prefill", "decode", "decode")
			a := b.complete(body(false, 4))
			if a.status != 503 || !strings.Contains(a.body, `"backend_unavailable"`) {
				t.Errorf("%d %s", a.status, a.body)
			}
			for _, r := range b.rows() {
				if r.Terminal != journal.Failed || !strings.HasPrefix(failuresOf(r), "prefill invalid_response e0 ") {
					t.Errorf("row %+v: %s", r, failuresOf(r))
				}
			}
			b.idleSoon()
		})
	}
}

// What a prefill leg does after the decode leg is complete is counted, and the answer stands.
func TestSGLangPrefillLegFailsTooLate(t *testing.T) {
	complete := make(chan struct{})
	through := func(c *Config, i int, then func(w http.ResponseWriter)) {
		to, err := url.Parse(c.Fleet.Engines[i].URL)
		if err != nil {
			t.Fatal(err)
		}
		pass := httputil.NewSingleHostReverseProxy(to)
		pass.FlushInterval = -1
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/v1/completions" || i == 1 {
				pass.ServeHTTP(w, r)
			} else {
				pass.ServeHTTP(httptest.NewRecorder(), r)
			}
			if r.URL.Path == "/v1/completions" {
				then(w)
			}
		}))
		t.Cleanup(s.Close)
		c.Fleet.Engines[i].URL = s.URL
	}
	b := sglangBedOf(t, func(c *Config) {
		through(c, 0, func(w http.ResponseWriter) {
			<-complete
			w.WriteHeader(http.StatusInternalServerError)
		})
		through(c, 1, func(http.ResponseWriter) { close(complete) })
		unswept(c)
	}, "prefill", "decode")
	if a := b.complete(body(false, 4)); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
	struck := 0
	b.router.own.do(func() {
		for _, n := range b.router.own.node("e0").streak {
			struck += n
		}
	})
	if r := b.rows()[0]; r.Terminal != journal.Completed || struck != 1 {
		t.Errorf("row %+v, the prefill engine was struck %d times", r, struck)
	}
}

// What a decode engine holds of a prompt saves no prefill where roles are fixed: the controller hears
// of the whole prompt.
func TestSGLangDemandIsOfPrefillEngines(t *testing.T) {
	b := sglangBed(t, "prefill", "decode")
	b.router.own.do(func() {
		o := b.router.own
		if got := o.most([]int{0, 900}); got != 0 {
			t.Errorf("a decode engine's %d tokens count", got)
		}
		if got := o.most([]int{300, 900}); got != 300 {
			t.Errorf("the prefill engine's tokens count as %d", got)
		}
	})
}
