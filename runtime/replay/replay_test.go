package replay

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/narwhal-fleet/narwhal/runtime/control"
	"github.com/narwhal-fleet/narwhal/runtime/journal"
	"github.com/narwhal-fleet/narwhal/runtime/model"
	"github.com/narwhal-fleet/narwhal/runtime/profile"
	"github.com/narwhal-fleet/narwhal/runtime/sched"
)

// crowd answers like residents whose number falls with time.
type crowd struct{ n, tokens int }

func (c crowd) Occupied(now, at, interval float64) (requests, tokens int) {
	left := max(0, c.n-int((at-now)/max(interval, 1e-3)/10))
	return left, left * c.tokens
}

func (c crowd) Slack(now float64, p *model.Params) float64 {
	if c.n == 0 {
		return math.Inf(1)
	}
	return p.TTFT - float64(c.n)/10
}

func drawn(t *rapid.T) (model.Snapshot, model.Request) {
	number := func(name string, scale float64) float64 {
		return float64(rapid.IntRange(0, 1000).Draw(t, name)) / 1000 * scale
	}
	s := model.Snapshot{At: 10 + number("at", 1), Handoff: number("handoff", 0.01), Params: model.Params{TTFT: 0.1 + number("ttft", 2), TPOT: 0.01 + number("tpot", 0.05), Lend: number("lend", 0.2)}}
	r := model.Request{ID: rapid.StringMatching("[a-z]{1,6}").Draw(t, "rid"), Arrived: s.At - number("elapsed", 0.1), Input: rapid.IntRange(1, 4000).Draw(t, "input"),
		Expected: rapid.IntRange(1, 300).Draw(t, "expected"), Unsplit: rapid.IntRange(0, 9).Draw(t, "unsplit") == 0}
	for i := range rapid.IntRange(2, 6).Draw(t, "engines") {
		c := crowd{rapid.IntRange(0, 5).Draw(t, "n"), rapid.IntRange(1, 900).Draw(t, "tokens")}
		e := model.EngineView{ID: string(rune('a' + i)), Role: []model.Role{model.Prefill, model.Decode}[rapid.IntRange(0, 1).Draw(t, "role")], Live: rapid.IntRange(0, 9).Draw(t, "live") > 0,
			Curve:       profile.Curve{B: 1e-4 + number("b", 1e-4), C: 0.01, Slope: 1e-6, RequestSlope: 1e-3, Intercept: 0.01, MaxRequests: 4, MaxKVTokens: 8000, KVCapacity: 9000},
			PrefillFree: s.At + number("free", 1), DecodeRequests: c.n, DecodeTokens: c.n * c.tokens, DecodeRemaining: c.n * 30, Correction: 0.9 + number("kappa", 0.2), Risk: 1.1, Later: c}
		s.Engines = append(s.Engines, e)
	}
	if rapid.Bool().Draw(t, "cached") {
		for range s.Engines {
			r.Cached = append(r.Cached, rapid.IntRange(0, r.Input-1).Draw(t, "held"))
		}
	}
	return s, r
}

// written is a journal with one placement and one evaluation.
func written(t *rapid.T) []byte {
	s, r := drawn(t)
	first := rapid.Bool().Draw(t, "first")
	curves := map[string]profile.Curve{}
	for _, e := range s.Engines {
		curves[e.ID] = e.Curve
	}
	var n Notes
	n.Watch(&s)
	d := Decision{Decision: place(&s, &r, first, &sched.Scratch{})}
	d.Inputs = &Placement{Fleet: n.Fleet(&s), First: first, Request: r}
	st := control.New(control.Params{TTFT: s.Params.TTFT, TPOT: s.Params.TPOT, MinPrefill: 1, MinDecode: 1, Expand: 1, Shrink: 0.5, Sustained: 3, Window: 120, Step: 5,
		Confirmations: 1, Utilization: 0.8, MinArrivals: 10, DemandFloor: 0.1, Margin: 0.05, EvidenceSpan: 60, Lends: true}, 0)
	for i := range rapid.IntRange(0, 60).Draw(t, "arrivals") {
		st, _ = control.Step(st, control.Arrival{At: float64(i) / 7, Input: r.Input, Wanted: 100})
	}
	for i := range rapid.IntRange(0, 30).Draw(t, "misses") {
		st, _ = control.Step(st, control.Miss{At: float64(i) / 4, Lack: model.Role(rapid.SampledFrom([]string{"prefill", "decode"}).Draw(t, "lack"))})
	}
	n.Watch(&s)
	_, actions := control.Step(st, control.Tick{Snapshot: s})
	in := Evaluation{Fleet: n.Fleet(&s), State: st}
	out := &bytes.Buffer{}
	line := func(v any) {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		out.Write(append(b, '\n'))
	}
	line(map[string]any{"meta": journal.Meta{Schema: journal.Schema, Version: journal.Version, Params: s.Params, Curves: curves}})
	row := journal.Row{Head: journal.Head{Schema: journal.Schema, Version: journal.Version}, RID: r.ID, Terminal: journal.Completed}
	row.Decision, _ = json.Marshal(d)
	if d.Placed {
		row.Prefill, row.Decode = &d.Prefill, &d.Decode
	}
	line(row)
	if c, ok := recorded(actions); ok {
		fields, _ := plain(c)
		m := fields.(map[string]any)
		m["schema"], m["schema_version"], m["event"], m["at"], m["inputs"] = journal.Schema, journal.Version, controllerEvent, c.At, in
		line(m)
	}
	return out.Bytes()
}

func played(t interface{ Fatal(...any) }, b []byte) Report {
	var p player
	if _, err := journal.Read(bytes.NewReader(b), p.line); err != nil {
		t.Fatal(err)
	}
	return p.Report
}

// Whatever the fleet, what was written is decided again alike.
func TestWrittenDecisionsComeOutAlike(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		if r := played(t, written(t)); r.Placements != 1 || r.Differ != 0 || r.Without != 0 {
			t.Fatalf("%+v", r)
		}
	})
}

// Each member of an engine's view, of a request and of the parameters reaches a journal and
// comes back, also one that is new. Curves come from the meta line, residents by their answers.
func TestInputsAreWrittenWhole(t *testing.T) {
	elsewhere := map[string]bool{"EngineView.Curve": true, "EngineView.Later": true}
	for _, v := range []any{model.EngineView{}, model.Request{}, model.Params{}, profile.Curve{}, Fleet{}, Placement{}, Evaluation{}} {
		typ := reflect.TypeOf(v)
		for i := range typ.NumField() {
			f := typ.Field(i)
			if tag := f.Tag.Get("json"); !f.IsExported() || strings.HasPrefix(tag, "-") {
				if !elsewhere[typ.Name()+"."+f.Name] {
					t.Errorf("%s.%s is in no journal", typ, f.Name)
				}
			}
		}
	}
}

// The journal's table of inputs has the members that are written, in their order.
func TestTheTableOfInputs(t *testing.T) {
	var want, got []string
	add := func(prefix string, typ reflect.Type) {
		for i := range typ.NumField() {
			if f := typ.Field(i); !f.Anonymous {
				key, _, _ := strings.Cut(f.Tag.Get("json"), ",")
				want = append(want, prefix+key)
			}
		}
	}
	add("", reflect.TypeFor[Fleet]())
	add("asked[].", reflect.TypeFor[Answer]())
	add("asked[].slack.", reflect.TypeFor[Slack]())
	add("", reflect.TypeFor[Placement]())
	add("", reflect.TypeFor[Evaluation]())
	for _, f := range journal.InputsFields() {
		got = append(got, f.Key)
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(want, got) {
		t.Errorf("types %v\ntable %v", want, got)
	}
}

// What cannot be made again is told, and nothing is made of a fleet without bound.
func TestUnplayableDecisions(t *testing.T) {
	meta := `{"meta":{"schema":"narwhal.journal","schema_version":1,"params":{"ttft_s":1,"tpot_s":0.1}}}` + "\n"
	row := func(decision string) string {
		return meta + `{"schema":"narwhal.journal","schema_version":1,"rid":"r","terminal":"completed","decision":` + decision + "}\n"
	}
	event := meta + `{"schema":"narwhal.journal","schema_version":1,"event":"controller_decision","at":1,"result":"held","inputs":`
	for name, c := range map[string]struct{ in, want string }{
		"curve":   {row(`{"placed":true,"inputs":{"engines":[{"iid":"p"}]}}`), `no curve of engine "p"`},
		"cut":     {row(`{"placed":true,"inputs":{"asked_cut":true}}`), "not kept whole"},
		"engines": {row(`{"placed":true,"inputs":{"engines":[` + strings.Repeat("{},", 5000) + `{}]}}`), "5001 engines"},
		"shape":   {row(`[]`), "cannot unmarshal"},
		"inputs":  {event + `[]}` + "\n", "cannot unmarshal"},
		"early":   {event + `{"now":1,"state":{"ticked":true,"last_tick":1,"params":{"Step":5}}}}` + "\n", "nothing is evaluated"},
	} {
		r := played(t, []byte(c.in))
		if r.Differ != 1 || !strings.Contains(r.Differences[0].Replayed, c.want) {
			t.Errorf("%s: %+v", name, r)
		}
	}
	if r := played(t, []byte(row(`{"placed":false,"prefills":null,"decodes":null}`))); r.Without != 1 || r.Differ != 0 || r.Placements != 0 {
		t.Errorf("without inputs: %+v", r)
	}
	if _, err := Path(filepath.Join(t.TempDir(), "absent")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("absent: %v", err)
	}
}

// No journal breaks the program.
func FuzzReplay(f *testing.F) {
	f.Add([]byte(`{"meta":{"schema":"narwhal.journal","schema_version":1,"params":{"ttft_s":1,"tpot_s":0.1},"curves":{"p":{"b":1,"max_requests":3}}}}
{"schema":"narwhal.journal","schema_version":1,"rid":"r","terminal":"completed","decision":{"inputs":{"now":1,"engines":[{"iid":"p","live":true,"role":"prefill"}],"request":{"cached":[7],"unsplit":true}}}}
{"schema":"narwhal.journal","schema_version":1,"event":"controller_decision","at":1,"inputs":{"engines":[{"iid":"p","live":true}],"state":{"params":{"Step":1,"Window":9},"closed":[{"N":1}]}}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var p player
		_, _ = journal.Read(bytes.NewReader(b), p.line)
	})
}
