package fabric

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/runtime/engine"
	"github.com/narwhal-fleet/narwhal/runtime/engine/simulated"
	"github.com/narwhal-fleet/narwhal/runtime/engine/simulated/simulatedtest"
)

// decodes is a fleet of n hosts that is measured under decode, and its good evidence.
func decodes(t *testing.T, n int) (fleet.Fleet, map[record.Key]any) {
	t.Helper()
	f := testFleet(n)
	f.Deploy.Fabric.UnderDecode, f.SLO.TPOTS, f.Engine.Dialect = true, 0.05, "vllm"
	e := good(t, f)
	for _, p := range decodePairs(f) {
		u := UnderDecode{A: p.A, B: p.B, Streams: 4, Forward: Loaded{Quiet: []float64{9, 9.1, 9, 9}, Busy: []float64{8.8, 8.9, 8.7}}, Back: Loaded{Quiet: []float64{9, 9, 9, 9}, Busy: []float64{8.9, 8.9, 9}}}
		for _, x := range enginesOf(f, p) {
			u.Engines = append(u.Engines, Decoded{IID: x.IID, Streams: decodeStreams, Requests: 8, Tokens: 900, Quiet: []float64{0.01, 0.011, 0.01}, Busy: []float64{0.012, 0.011, 0.012}, QuietLongest: 0.02, BusyLongest: 0.03})
		}
		e[decodeKey(p)] = u
	}
	return f, e
}

// TestJudgeUnderDecode: each fault shows its code, at its host.
func TestJudgeUnderDecode(t *testing.T) {
	const key = record.Key("D/decode/h1/h2")
	for name, c := range map[string]struct {
		note   bool
		change func(*UnderDecode)
		pair   func(*Pair)
		fleet  func(*fleet.Fleet)
		want   []string
	}{
		"good":                        {},
		"a link below the floor":      {change: func(u *UnderDecode) { u.Back.Busy = []float64{3, 3.1, 9} }, want: []string{"edge-slow-under-decode@h2"}},
		"no rate at all":              {change: func(u *UnderDecode) { u.Forward.Busy = nil }, want: []string{"edge-slow-under-decode@h1"}},
		"slow without decode as well": {change: func(u *UnderDecode) { u.Back.Busy = []float64{3, 3, 3} }, pair: func(p *Pair) { p.Back = direction(3) }, want: []string{"edge-outlier@h2", "edge-slow@h2"}},
		"much less, above the floor":  {note: true, change: func(u *UnderDecode) { u.Forward.Busy = []float64{5, 5.1, 5} }, want: []string{"edge-slow-under-decode@h1"}},
		"less, but little":            {change: func(u *UnderDecode) { u.Forward.Busy = []float64{6.5, 6.2, 6} }},
		"much less, and allowed": {change: func(u *UnderDecode) { u.Forward.Busy = []float64{5, 5.1, 5} },
			fleet: func(f *fleet.Fleet) { f.Deploy.Fabric.Outlier = 0 }},
		"tokens that take longer": {change: func(u *UnderDecode) { u.Engines[1].Busy = []float64{0.034, 0.035, 0.034} }, want: []string{"decode-stalls-under-transfer@h2"}},
		"tokens beyond the limit": {change: func(u *UnderDecode) {
			u.Engines[0].Quiet, u.Engines[0].Busy = []float64{0.04, 0.04, 0.04}, []float64{0.06, 0.06, 0.06}
		}, want: []string{"decode-stalls-under-transfer@h1"}},
		"beyond the limit anyway": {change: func(u *UnderDecode) {
			u.Engines[0].Quiet, u.Engines[0].Busy = []float64{0.06, 0.06, 0.06}, []float64{0.07, 0.07, 0.07}
		}},
		"a fast engine's few milliseconds": {change: func(u *UnderDecode) {
			u.Engines[0].Quiet, u.Engines[0].Busy = []float64{0.001, 0.001, 0.001}, []float64{0.005, 0.004, 0.004}
		}},
		"a stall":                     {change: func(u *UnderDecode) { u.Engines[0].BusyLongest = 0.8 }, want: []string{"decode-stalls-under-transfer@h1"}},
		"a stall on an idle link":     {change: func(u *UnderDecode) { u.Engines[0].BusyLongest, u.Engines[0].QuietLongest = 0.8, 0.6 }},
		"an engine that refuses":      {change: func(u *UnderDecode) { u.Engines[1] = Decoded{IID: "eh2", Failed: "401"} }, want: []string{"decode-unasked@h2"}},
		"no engine that decodes":      {note: true, change: func(u *UnderDecode) { u.Engines[0].Lent, u.Engines[1].Lent = true, true }, want: []string{"decode-unasked@h1"}},
		"no engine at all":            {change: func(u *UnderDecode) { u.Engines = nil }, want: []string{"decode-unasked@h1", "decode-unasked@h2"}},
		"an engine that was left out": {change: func(u *UnderDecode) { u.Engines = u.Engines[:1] }, want: []string{"decode-unasked@h2"}},
		"one that begins requests":    {change: func(u *UnderDecode) { u.Engines[0] = Decoded{IID: "eh1", Lent: true} }},
		"a tester that is gone":       {change: func(u *UnderDecode) { *u = UnderDecode{Unreachable: "refused"} }, want: []string{"edge-unreachable@h1"}},
		"gone for both": {change: func(u *UnderDecode) { *u = UnderDecode{Unreachable: "refused"} }, pair: func(p *Pair) { *p = Pair{Unreachable: "refused"} },
			want: []string{"edge-unreachable@h1"}},
		"one machine": {change: func(u *UnderDecode) {
			u.Loopback, u.Forward.Busy, u.Engines[0].Busy, u.Engines[0].BusyLongest = true, []float64{3, 4.1, 3}, []float64{0.06, 0.06, 0.06}, 1
		}},
		"one machine that stands still": {change: func(u *UnderDecode) { u.Loopback, u.Engines[0].BusyLongest = true, 2.5 }, want: []string{"decode-stalls-under-transfer@h1"}},
	} {
		f, e := decodes(t, 4)
		if c.fleet != nil {
			c.fleet(&f)
		}
		if c.change != nil {
			u := e[key].(UnderDecode)
			u.Engines = slices.Clone(u.Engines)
			c.change(&u)
			e[key] = u
		}
		if c.pair != nil {
			p := e["D/pair/h1/h2"].(Pair)
			c.pair(&p)
			e["D/pair/h1/h2"] = p
		}
		var codes []string
		for _, x := range (Gate{}).Judge(view(t, f, e)) {
			if x.Note != c.note {
				t.Errorf("%s: note is %v", name, x.Note)
			}
			codes = append(codes, x.Code+"@"+x.Host)
			if x.Message == "" || x.Hint == "" || x.Want == "" || x.Got == "" || e[record.Key(x.Evidence)] == nil {
				t.Errorf("%s: finding %+v says too little", name, x)
			}
		}
		slices.Sort(codes)
		if !slices.Equal(codes, c.want) {
			t.Errorf("%s: found %v, want %v", name, codes, c.want)
		}
	}
}

// TestDecodeIsPlanned: one step a pair, on hosts that take part in nothing else, with the key's
// variable and never the key; none where the link is not the tester's to measure.
func TestDecodeIsPlanned(t *testing.T) {
	f, _ := decodes(t, 3)
	f.Engine.EngineAPIKeyEnv = "ENGINE_KEY"
	n := 0
	for _, s := range planned(t, f) {
		if !strings.HasPrefix(s.ID, "D/decode/") {
			continue
		}
		n++
		line := strings.Join(s.Argv, " ")
		if len(s.Exclusive) != 2 || len(s.Needs) != 1 || s.Secrets["ENGINE_KEY"] != "env:ENGINE_KEY" || !strings.Contains(line, `"key":"ENGINE_KEY"`) || !strings.Contains(line, "192.0.2.1") {
			t.Errorf("step %+v", s)
		}
	}
	if n != 3 || len(enginesOf(f, Twosome{"h0", "h2"})) != 3 {
		t.Errorf("%d steps", n)
	}
	for name, change := range map[string]func(*fleet.Fabric){"rdma": func(f *fleet.Fabric) { f.Transport = "rdma" }, "off": func(f *fleet.Fabric) { f.UnderDecode = false }} {
		f, _ := decodes(t, 3)
		change(&f.Deploy.Fabric)
		if got := decodePairs(f); len(got) != 0 {
			t.Errorf("%s: pairs %v", name, got)
		}
	}
}

// TestInterval: waits within a window, and of those that reach over its ends their part.
func TestInterval(t *testing.T) {
	base := time.Unix(100, 0)
	at := func(ms int) time.Time { return base.Add(time.Duration(ms) * time.Millisecond) }
	tok := func(ms int) arrival { return arrival{at: at(ms), tokens: 1} }
	for name, c := range map[string]struct {
		streams       [][]arrival
		each, longest float64
	}{
		"none":               {nil, 0, 0},
		"even":               {[][]arrival{{tok(0), tok(10), tok(20), tok(30), tok(100), tok(110)}}, (100. - 0) / 4 / 1000, 0.07},
		"two tokens at once": {[][]arrival{{tok(0), {at: at(20), tokens: 2}}}, 0.010, 0.02},
		"between requests":   {[][]arrival{{tok(0), tok(10), {at: at(10), over: true}, {at: at(11), fresh: true}, tok(90), tok(100)}}, 0.010, 0.01},
		"still throughout":   {[][]arrival{{tok(-50), {at: at(500), over: true}}}, 0.1, 0.1},
		"over the ends":      {[][]arrival{{tok(-5), tok(5), tok(15), tok(95), tok(105)}}, 0.1 / 3, 0.08},
		"after it":           {[][]arrival{{tok(200), tok(210)}}, 0, 0},
	} {
		each, longest := interval(c.streams, at(0), at(100))
		if math.Abs(each-c.each) > 1e-9 || math.Abs(longest-c.longest) > 1e-9 {
			t.Errorf("%s: %g s a token, longest %g; want %g, %g", name, each, longest, c.each, c.longest)
		}
	}
}

func simulatedEngine(t *testing.T, change func(*simulated.Config)) *simulated.Server {
	t.Helper()
	cfg := simulated.Config{Model: "tiny", SideChannel: "127.0.0.1:0", Simulated: fleet.Simulated{
		PrefillA: 0.004, PrefillB: 0.00005, DecodeD: 0.004, DecodeE: 0.0005, BlockSize: 16, Blocks: 2000, MaxModelLen: 4096, MaxNumSeqs: 16, MaxBatched: 4096, LeaseS: 30,
	}}
	return simulatedtest.Start(t, cfg, change)
}

func decodeRequest(address, dialect string, engines ...*simulated.Server) DecodeRequest {
	q := DecodeRequest{A: "h0", B: "h1", Address: address, Streams: 1, Window: fleet.Duration(leastWindow), Dialect: dialect, Model: "tiny"}
	for i, s := range engines {
		q.Engines = append(q.Engines, EngineAt{IID: string(rune('p' + i)), URL: s.URL()})
	}
	return q
}

// TestMeasureDecode asks two simulated engines while a loopback is full.
func TestMeasureDecode(t *testing.T) {
	key := "a-key-of-engines"
	t.Setenv("FABRIC_TEST_KEY", key)
	keyed := func(c *simulated.Config) { c.APIKey = fleet.NewSecret(key) }
	a, b := simulatedEngine(t, keyed), simulatedEngine(t, keyed)
	q := decodeRequest(serving(t, nil), "vllm", a, b)
	q.Key = "FABRIC_TEST_KEY"
	u, err := MeasureDecode(limited(t), q)
	if err != nil {
		t.Fatal(err)
	}
	if !u.Loopback || len(u.Engines) != 2 || len(u.Forward.Quiet) != 2*quietEnds || len(u.Back.Busy) != busyWindows || median(u.Forward.Busy) <= 0 {
		t.Errorf("measured %+v", u)
	}
	for _, d := range u.Engines {
		if d.Failed != "" || d.Streams != decodeStreams || len(d.Quiet) != busyWindows || len(d.Busy) != busyWindows || d.Tokens < 100 || median(d.Quiet) < 0.005 || d.Requests > decodeStreams*mostRequests {
			t.Errorf("engine %+v", d)
		}
	}
	q.Key, q.Window = "", fleet.Duration(leastPart)
	u, err = MeasureDecode(limited(t), q)
	if err != nil || len(u.Engines) != 2 || !strings.Contains(u.Engines[0].Failed, "401") {
		t.Errorf("without a key: %+v, %v", u.Engines, err)
	}
}

// TestMeasureDecodeTogether: processes with roles are asked in pairs, and one without a partner
// says so.
func TestMeasureDecodeTogether(t *testing.T) {
	role := func(role string) *simulated.Server {
		return simulatedEngine(t, func(c *simulated.Config) { c.Dialect, c.Role, c.BlockSize, c.Blocks = "sglang", role, 1, 32000 })
	}
	p, d := role(engine.RolePrefill), role(engine.RoleDecode)
	address := serving(t, nil)
	u, err := MeasureDecode(limited(t), decodeRequest(address, "sglang", p, d))
	if err != nil || len(u.Engines) != 2 {
		t.Fatalf("%+v, %v", u, err)
	}
	if !u.Engines[0].Lent || u.Engines[1].Failed != "" || u.Engines[1].Tokens < 50 || len(u.Engines[1].Busy) != busyWindows {
		t.Errorf("engines %+v", u.Engines)
	}
	if u, err = MeasureDecode(limited(t), decodeRequest(address, "sglang", d)); err != nil || !strings.Contains(u.Engines[0].Failed, "role prefill") {
		t.Errorf("alone: %+v, %v", u.Engines, err)
	}
	q := decodeRequest(address, "sglang", d)
	q.Window = fleet.Duration(leastPart)
	q.Others = []EngineAt{{IID: "x", URL: p.URL()}}
	if u, err = MeasureDecode(limited(t), q); err != nil || u.Engines[0].Failed != "" {
		t.Errorf("with another's: %+v, %v", u.Engines, err)
	}
}

// TestMeasureDecodeFails: an engine that breaks is named, and so is what cannot be asked.
func TestMeasureDecodeFails(t *testing.T) {
	for name, c := range map[string]struct {
		in   simulated.Injection
		says string
	}{
		"a refusal":            {simulated.Injection{Kind: "status", Count: -1, Status: 503}, "503"},
		"a stream without end": {simulated.Injection{Kind: "eof", Count: -1, After: 2}, ""},
	} {
		s := simulatedEngine(t, nil)
		if err := s.Inject(c.in); err != nil {
			t.Fatal(err)
		}
		u, err := MeasureDecode(limited(t), decodeRequest(serving(t, nil), "vllm", s))
		if len(u.Forward.Busy) != 0 && c.says != "" {
			t.Errorf("%s: rates under no decode: %v", name, u.Forward.Busy)
		}
		if err != nil || len(u.Engines) != 1 || u.Engines[0].Failed == "" || !strings.Contains(u.Engines[0].Failed, c.says) {
			t.Errorf("%s: %+v, %v", name, u.Engines, err)
		}
	}
	s := simulatedEngine(t, nil)
	gone := decodeRequest("127.0.0.1:1", "vllm", s)
	for name, q := range map[string]DecodeRequest{
		"no engine":  {Address: "127.0.0.1:1", Streams: 1, Window: fleet.Duration(leastWindow), Dialect: "vllm"},
		"no stream":  func() DecodeRequest { q := gone; q.Streams = 0; return q }(),
		"no dialect": func() DecodeRequest { q := gone; q.Dialect = "x"; return q }(),
		"no window":  func() DecodeRequest { q := gone; q.Window = 0; return q }(),
	} {
		if _, err := MeasureDecode(limited(t), q); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// FuzzTokensIn reads any bytes as an event of a stream.
func FuzzTokensIn(f *testing.F) {
	for _, s := range []string{`{"choices":[{"text":"a","token_ids":[1,2]}]}`, `{"error":{"message":"x"}}`, `{"choices":[]}`, `[`, `{"choices":[{"text":""}],"error":null}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if n, err := tokensIn(b); n < 0 || err != nil && n != 0 {
			t.Errorf("%d tokens, %v", n, err)
		}
	})
}
