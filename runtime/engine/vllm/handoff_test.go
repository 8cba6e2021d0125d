package vllm

import (
	"encoding/json"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/engine"
)

func recorded(t *testing.T) *engine.Handoff {
	t.Helper()
	h, u, err := New().ParseHandoff(payload(t, "pd", "completions-first-contact", "1-prefill-response.http"), time.Unix(100, 0))
	if err != nil {
		t.Fatal(err)
	}
	if u.PromptTokens != 200 || u.CompletionTokens != 1 {
		t.Fatalf("usage %+v", u)
	}
	return h
}

func TestParseRecordedHandoff(t *testing.T) {
	h := recorded(t)
	if h.EngineID != "c6e8847c-c16c-42be-9b16-4da0c95e526f" || h.Host != "127.0.0.1" || h.Port != 5600 ||
		h.Tokens != 200 || len(h.Blocks) != 1 || len(h.Blocks[0]) != 7 || h.TransferMode != "pull" {
		t.Fatalf("%+v", h)
	}
	want := engine.Expect{EngineID: h.EngineID, Host: "127.0.0.1", Port: 5600, BlockSize: 32, PromptTokens: 200}
	if err := New().Check(h, want); err != nil {
		t.Fatal(err)
	}
	if d := h.Deadline(30 * time.Second); d.Sub(h.Received) != 10*time.Second {
		t.Fatal(d)
	}
	if d := h.Deadline(6 * time.Second); d.Sub(h.Received) != 3*time.Second {
		t.Fatal(d)
	}
}

func TestCheckRefuses(t *testing.T) {
	good := recorded(t)
	cases := []struct {
		name, field string
		change      func(m map[string]any)
		want        engine.Expect
	}{
		{"no host", "remote_host", func(m map[string]any) { delete(m, "remote_host") }, engine.Expect{}},
		{"null port", "remote_port", func(m map[string]any) { m["remote_port"] = nil }, engine.Expect{}},
		{"port text", "remote_port", func(m map[string]any) { m["remote_port"] = "5600" }, engine.Expect{}},
		{"no blocks", "remote_block_ids", func(m map[string]any) { m["remote_block_ids"] = []any{} }, engine.Expect{}},
		{"empty group", "remote_block_ids", func(m map[string]any) { m["remote_block_ids"] = []any{[]int{}} }, engine.Expect{}},
		{"flat", "remote_block_ids", func(m map[string]any) { m["remote_block_ids"] = []int{1, 2} }, engine.Expect{}},
		{"block text", "remote_block_ids", func(m map[string]any) { m["remote_block_ids"] = "1" }, engine.Expect{}},
		{"negative block", "remote_block_ids", func(m map[string]any) { m["remote_block_ids"] = [][]int{{-1}} }, engine.Expect{}},
		{"too few", "remote_block_ids", func(m map[string]any) { m["remote_block_ids"] = [][]int{{1, 2, 3}} }, engine.Expect{BlockSize: 32}},
		{"no engine", "remote_engine_id", func(m map[string]any) { delete(m, "remote_engine_id") }, engine.Expect{}},
		{"no request", "remote_request_id", func(m map[string]any) { m["remote_request_id"] = "" }, engine.Expect{}},
		{"no tp", "tp_size", func(m map[string]any) { delete(m, "tp_size") }, engine.Expect{}},
		{"zero pp", "pp_size", func(m map[string]any) { m["pp_size"] = 0 }, engine.Expect{}},
		{"fraction dcp", "dcp_size", func(m map[string]any) { m["dcp_size"] = 1.5 }, engine.Expect{}},
		{"not turned", "do_remote_prefill", func(m map[string]any) { m["do_remote_prefill"] = false }, engine.Expect{}},
		{"still decode", "do_remote_decode", func(m map[string]any) { m["do_remote_decode"] = true }, engine.Expect{}},
		{"push", "transfer_mode", func(m map[string]any) { m["transfer_mode"] = "push" }, engine.Expect{}},
		{"no tokens", "remote_num_tokens", func(m map[string]any) { delete(m, "remote_num_tokens") }, engine.Expect{}},
		{"other count", "remote_num_tokens", nil, engine.Expect{PromptTokens: 207}},
		{"other process", "remote_engine_id", nil, engine.Expect{EngineID: "x"}},
		{"other host", "remote_host", nil, engine.Expect{Host: "10.0.0.9"}},
		{"other port", "remote_port", nil, engine.Expect{Port: 5601}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			m := decode(t, good.Raw)
			if c.change != nil {
				c.change(m)
			}
			b, _ := json.Marshal(map[string]any{"usage": map[string]int{"prompt_tokens": 200}, "kv_transfer_params": m})
			h, _, err := New().ParseHandoff(b, time.Now())
			if err != nil {
				t.Fatal(err)
			}
			var he *engine.HandoffError
			if err := New().Check(h, c.want); !errors.As(err, &he) || he.Field != c.field {
				t.Fatalf("got %v, want a refusal of %s", err, c.field)
			}
		})
	}
}

// The handoffs that real engines died of, hung on or answered wrongly.
func TestCheckRefusesRecordedKillers(t *testing.T) {
	for dir, refused := range map[string]bool{
		"handle-flat-blocks": true, "handle-empty-blocks": true, "handle-missing-host": true,
		"handle-missing-engine": true, "handle-missing-tp-size": true, "handle-wrong-request-id": false,
	} {
		m := decode(t, payload(t, "pd", dir, "2-decode-request.http"))
		raw, _ := json.Marshal(m["kv_transfer_params"])
		h := readHandoff(raw)
		if err := New().Check(h, engine.Expect{BlockSize: 32, PromptTokens: 200}); (err != nil) != refused {
			t.Errorf("%s: %v", dir, err)
		}
	}
}

func TestParseHandoffAbsent(t *testing.T) {
	for _, in := range []string{`{"usage":{"prompt_tokens":3},"kv_transfer_params":null}`, `{"usage":{"prompt_tokens":3}}`} {
		_, u, err := New().ParseHandoff([]byte(in), time.Now())
		if !errors.Is(err, engine.ErrNoHandoff) || u.PromptTokens != 3 {
			t.Errorf("%s: %+v %v", in, u, err)
		}
	}
	for _, in := range []string{``, `{}`, `[]`, `{"usage":{"prompt_tokens":3},"kv_transfer_params":[1]}`} {
		if _, _, err := New().ParseHandoff([]byte(in), time.Now()); err == nil || errors.Is(err, engine.ErrNoHandoff) {
			t.Errorf("%s: %v", in, err)
		}
	}
}

func TestStateOfRecordedScrape(t *testing.T) {
	f, err := os.Open("testdata/metrics-decode.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s, err := engine.ParseMetrics(f)
	if err != nil {
		t.Fatal(err)
	}
	st, err := New().State(s)
	if err != nil {
		t.Fatal(err)
	}
	if st.Transferred != 200 || st.LocalCompute != 6592 || st.TransferBytes != 114688 || st.FinishedOK != 26 ||
		st.PrefillTime.Count != 26 || !st.Awake || !st.HasTransfer || st.ProcessStart != 1.79597177175e9 {
		t.Fatalf("%+v", st)
	}
	l, err := engine.LayoutFrom(s)
	if err != nil || l.BlockSize != 32 || l.Blocks != 65536 || l.BytesPerBlock != 16384 || !l.PrefixCaching {
		t.Fatalf("%+v %v", l, err)
	}
}

func TestStateNamesWhatIsMissing(t *testing.T) {
	var me *engine.MissingError
	if _, err := New().State(engine.Samples{}); !errors.As(err, &me) || len(me.Names) != 6 {
		t.Fatalf("%v", err)
	}
}

func FuzzParseHandoff(f *testing.F) {
	f.Add([]byte(`{"usage":{"prompt_tokens":3},"kv_transfer_params":{"remote_block_ids":[[1]],"remote_port":1}}`))
	f.Add([]byte(`{"usage":{},"kv_transfer_params":{"remote_block_ids":[1,2]}}`))
	f.Add([]byte(`{"usage":{},"kv_transfer_params":"x"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, _, err := New().ParseHandoff(b, time.Time{})
		if err != nil {
			return
		}
		if !json.Valid(h.Raw) {
			t.Fatalf("raw %q", h.Raw)
		}
		_ = New().Check(h, engine.Expect{BlockSize: 16})
		if _, err := engine.Decode(New(), []byte(`{}`), h); err != nil {
			t.Fatal(err)
		}
	})
}
