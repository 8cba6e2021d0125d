package simulated

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/engine"
	"github.com/narwhal-fleet/narwhal/runtime/engine/vllm"
)

// What a router must not send as leg 1, and what it costs the producer when it does.
func TestWrongLegsPin(t *testing.T) {
	const marker = `"kv_transfer_params":{"do_remote_decode":true}`
	t.Run("streamed", func(t *testing.T) {
		s, c := boot(t, nil)
		got := events(t, c, "/v1/completions", `{`+long+`,"max_tokens":1,"stream":true,`+marker+`}`)
		if strings.Contains(strings.Join(got, ""), "remote_block_ids") || s.State().Pins != 1 {
			t.Fatal(got, s.State().Pins)
		}
	})
	t.Run("two choices", func(t *testing.T) {
		s, c := boot(t, nil)
		got := ask(t, c, `{"prompt":"hello over there","max_tokens":1,"n":2,`+marker+`}`)
		h, _, err := vllm.New().ParseHandoff(got.Raw, time.Now())
		if err != nil || !strings.HasPrefix(h.RequestID, "1_cmpl-") || s.State().Pins != 2 {
			t.Fatal(h, err, s.State().Pins)
		}
	})
	t.Run("two prompts", func(t *testing.T) {
		s, c := boot(t, nil)
		got := ask(t, c, `{"prompt":[[1,2,3],[4,5,6,7,8]],"max_tokens":1,`+marker+`}`)
		h, _, err := vllm.New().ParseHandoff(got.Raw, time.Now())
		if err != nil || h.Tokens != 3 || s.State().Pins != 2 {
			t.Fatal(h, err, s.State().Pins)
		}
	})
	t.Run("many tokens", func(t *testing.T) {
		_, c := boot(t, nil)
		got := ask(t, c, `{"prompt":[1,2,3],"max_tokens":5,`+marker+`}`)
		h, u, err := vllm.New().ParseHandoff(got.Raw, time.Now())
		if err != nil || h.Tokens != 7 {
			t.Fatal(h, err)
		}
		var he *engine.HandoffError
		if err := vllm.New().Check(h, engine.Expect{PromptTokens: u.PromptTokens}); !errors.As(err, &he) {
			t.Fatal("a leg 1 of five tokens passed")
		}
	})
}

func TestQueueLimit(t *testing.T) {
	s, c := boot(t, func(cfg *Config) { cfg.MaxQueued = 1; cfg.MaxNumSeqs = 1; cfg.DecodeD = 0.02 })
	for range 2 {
		go func() { _, _ = c.CompleteBody(t.Context(), []byte(`{"prompt":"x","max_tokens":400}`), "") }()
		until(t, "a place", func() bool { return s.State().Load.Running == 1 })
	}
	until(t, "the queue", func() bool { return s.State().Load.Capacity == 1 })
	var se *engine.StatusError
	if _, err := c.CompleteBody(limited(t), []byte(`{"prompt":"x"}`), ""); !errors.As(err, &se) || !se.Busy() {
		t.Fatal(err)
	}
	m, err := c.Metrics(limited(t))
	if err != nil {
		t.Fatal(err)
	}
	if n, _ := m.Sum("vllm:admission_rejections_total"); n != 1 {
		t.Fatal(n)
	}
}

func TestRecomputePolicyHidesTheFailure(t *testing.T) {
	_, pc := boot(t, nil)
	d, dc := boot(t, func(c *Config) { c.Recompute = true })
	_, uc := boot(t, nil)
	body := `{` + long + `,"max_tokens":8}`
	h := leg1(t, pc, body)
	if err := d.Inject(Injection{Kind: "read-failure"}); err != nil {
		t.Fatal(err)
	}
	got, err := leg2(t, dc, body, h)
	if err != nil || got.Text != ask(t, uc, body).Text {
		t.Fatal(got.Text, err)
	}
	m, err := dc.Metrics(limited(t))
	if err != nil {
		t.Fatal(err)
	}
	st, _ := vllm.New().State(m)
	if st.LocalCompute == 0 || st.Transferred != 0 || st.FailedTransfers != 1 {
		t.Fatalf("%+v", st)
	}
}
