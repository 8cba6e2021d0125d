package attestation

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/attest"
	"github.com/narwhal-fleet/narwhal/attest/look"
	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/gatestest"
	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/internal/process"
	"github.com/narwhal-fleet/narwhal/runtime/engine"
	"github.com/narwhal-fleet/narwhal/runtime/engine/simulated"
)

func limited(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func testFleet() fleet.Fleet {
	return fleet.Fleet{
		Model:   "tiny",
		Engine:  fleet.Backend{Connector: "nixl"},
		Engines: []fleet.Engine{{IID: "e", URL: "http://192.0.2.11:8100", AttestationURL: "http://192.0.2.11:8110/v1/attestation"}},
		Deploy: &fleet.Deploy{Name: "tern", Hosts: map[string]fleet.Host{"h1": {Root: "/opt/n"}}, Engines: map[string]fleet.Place{"e": {Host: "h1", Launch: "l"}},
			Launch: map[string]fleet.Launch{"l": {Kind: "process", Argv: []string{"x"}}}, Router: fleet.Router{Host: "h1"}},
	}
}

// view is what the gate sees of recorded evidence.
func view(t *testing.T, f fleet.Fleet, evidence map[record.Key]any) gates.View {
	t.Helper()
	return gatestest.View(t, f, gates.Release{}, time.Time{}, evidence)
}

// env dials the sidecar, wherever the fleet says that it is; nothing else is scripted.
type env struct {
	gates.Env
	t       *testing.T
	address string
	asked   string
}

func (e *env) Dial(ctx context.Context, host, address string) (net.Conn, error) {
	e.asked = host + " " + address
	return (&net.Dialer{}).DialContext(ctx, "tcp", e.address)
}

func keyPair(t *testing.T) (*attest.Signer, string) {
	t.Helper()
	private, public, err := attest.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	s, err := attest.LoadSigner(private, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s, string(public)
}

// rig is a simulated engine with a sidecar in front, and the evidence of earlier gates.
type rig struct {
	fleet    fleet.Fleet
	evidence map[record.Key]any
	engine   *simulated.Server
	live     live
	sidecar  string // address
	public   string
}

func newRig(t *testing.T) *rig {
	t.Helper()
	return newRigOf(t, func(*fleet.Fleet) {})
}

func newRigOf(t *testing.T, change func(*fleet.Fleet)) *rig {
	t.Helper()
	s, err := simulated.New(simulated.Config{Model: "tiny", Simulated: fleet.Simulated{}})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	c, err := engine.NewClient(s.URL(), engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	id, err := c.Identity(limited(t))
	if err != nil {
		t.Fatal(err)
	}
	cache, err := c.CacheLayout(limited(t))
	if err != nil {
		t.Fatal(err)
	}
	self, err := attest.ProcessIdentity(os.Getpid())
	if err != nil {
		t.Skipf("needs /proc: %v", err)
	}
	signer, public := keyPair(t)
	r := &rig{fleet: testFleet(), engine: s, public: public,
		live: live{Version: id.Version, ProcessStart: id.ProcessStart, PID: self.PID, BootID: self.BootID, Ticks: uint64(self.StartTicks), Launch: strings.Repeat("a", 64)}}
	r.fleet.Engines[0].URL = s.URL()
	change(&r.fleet)
	r.evidence = map[record.Key]any{liveKey("e"): r.live, "C/cache/e": cache, "B/key/h1": map[string]string{"public": public}, sidecarKey("e"): gates.Launched{Name: "sidecar-e"}}
	r.observe(t)
	doc, _, err := documentOf(view(t, r.fleet, r.evidence), "e")
	if err != nil {
		t.Fatal(err)
	}
	r.sidecar = serveSidecar(t, doc, s.URL(), signer)
	return r
}

// observe looks at the engine as the gate's step does on its host.
func (r *rig) observe(t *testing.T) {
	t.Helper()
	w, err := WatchOf(r.fleet, "e")
	if err != nil {
		t.Fatal(err)
	}
	seen, err := look.New(w, false).Look(limited(t), r.live.PID, int64(r.live.Ticks))
	if err != nil {
		t.Fatal(err)
	}
	r.evidence[observedKey("e")] = Observation{Identity: process.Identity{PID: r.live.PID, BootID: r.live.BootID, StartTicks: r.live.Ticks}, Observed: seen}
}

func serveSidecar(t *testing.T, doc attest.Document, url string, signer *attest.Signer) string {
	t.Helper()
	// The document passes through the file that the gate writes.
	b, err := doc.File()
	if err != nil {
		t.Fatal(err)
	}
	if doc, err = attest.ParseDocument(b); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ready, done := make(chan net.Addr, 1), make(chan error, 1)
	go func() {
		looker, err := attest.LookerOf(doc)
		if err != nil {
			done <- err
			return
		}
		done <- attest.Serve(ctx, attest.SidecarConfig{Listen: "127.0.0.1:0", Document: doc, Looker: looker, Identity: attest.HTTPIdentity{Base: url, PID: os.Getpid()}, Signer: signer, Ready: func(a net.Addr) { ready <- a }})
	}()
	t.Cleanup(func() { cancel(); <-done })
	select {
	case a := <-ready:
		return a.String()
	case err := <-done:
		done <- nil
		t.Fatal(err)
	case <-time.After(20 * time.Second):
		t.Fatal("the sidecar does not start")
	}
	return ""
}

// state asks the sidecar as the gate's step does.
func (r *rig) state(t *testing.T) Stated {
	t.Helper()
	e := &env{t: t, address: r.sidecar}
	args, err := json.Marshal(askArgs{Host: "h1", Address: "192.0.2.11:8110"})
	if err != nil {
		t.Fatal(err)
	}
	b, err := Gate{}.Locals()["ask"](limited(t), e, args)
	if err != nil {
		t.Fatal(err)
	}
	if e.asked != "h1 192.0.2.11:8110" {
		t.Errorf("dialled %s", e.asked)
	}
	var s Stated
	if err := json.Unmarshal(b, &s); err != nil {
		t.Fatal(err)
	}
	return s
}

func (r *rig) judge(t *testing.T, s Stated) []string {
	t.Helper()
	r.evidence[statementKey("e")] = s
	var codes []string
	for _, f := range (Gate{}).Judge(view(t, r.fleet, r.evidence)) {
		codes = append(codes, f.Code)
		if f.Host != "h1" || f.Engine != "e" || f.Message == "" || f.Hint == "" || f.Evidence != "E/statement/e" && f.Code != "observed-process" && f.Code != "statement-unseen" {
			t.Errorf("finding %+v says too little", f)
		}
	}
	slices.Sort(codes)
	return slices.Compact(codes)
}

func TestStatement(t *testing.T) {
	r := newRig(t)
	s := r.state(t)
	if got := r.judge(t, s); len(got) != 0 {
		t.Fatalf("found %v", got)
	}
	if state, _ := gates.Verdict(Gate{}, view(t, r.fleet, r.evidence), nil); state != record.VerdictPassed {
		t.Errorf("verdict %s", state)
	}
	if again := r.state(t); again.Nonce == s.Nonce {
		t.Error("two statements answer one nonce")
	}
}

func TestStatementOfADeclaredContract(t *testing.T) {
	r := newRig(t)
	f := r.fleet
	f.EngineContract = &fleet.Contract{EngineVersion: r.live.Version, KVHeads: 2, Connector: "NixlConnector"}
	doc, _, err := documentOf(view(t, f, r.evidence), "e")
	if err != nil || doc.Sources["engine_version"] != "declared in the fleet file" || doc.Contract != *f.EngineContract {
		t.Fatalf("document %+v, %v", doc, err)
	}
	signer, public := keyPair(t)
	r.fleet, r.public = f, public
	r.evidence["B/key/h1"] = map[string]string{"public": public}
	r.sidecar = serveSidecar(t, doc, r.engine.URL(), signer)
	if got := r.judge(t, r.state(t)); len(got) != 0 {
		t.Errorf("found %v", got)
	}
}

// TestRefusals changes what the earlier gates saw, or the statement, one thing at a time.
func TestRefusals(t *testing.T) {
	r := newRig(t)
	good := r.state(t)
	base := map[record.Key]any{}
	for k, v := range r.evidence {
		base[k] = v
	}
	_, otherPublic := keyPair(t)
	for name, c := range map[string]struct {
		live   func(*live)
		fleet  func(*fleet.Fleet)
		change func(*rig, *Stated)
		want   []string
	}{
		"a replayed statement":    {change: func(_ *rig, s *Stated) { s.Nonce = attest.NewNonce() }, want: []string{"statement-nonce"}},
		"no nonce":                {change: func(_ *rig, s *Stated) { s.Nonce = "" }, want: []string{"statement-unchecked"}},
		"the key of another host": {change: func(r *rig, _ *Stated) { r.evidence["B/key/h1"] = map[string]string{"public": otherPublic} }, want: []string{"statement-unknown-key"}},
		"no key":                  {change: func(r *rig, _ *Stated) { r.evidence["B/key/h1"] = map[string]string{"public": ""} }, want: []string{"statement-unchecked"}},
		"no evidence of gate B":   {change: func(r *rig, _ *Stated) { delete(r.evidence, "B/key/h1") }, want: []string{"statement-unchecked"}},
		"no evidence of gate C":   {change: func(r *rig, _ *Stated) { delete(r.evidence, liveKey("e")) }, want: []string{"statement-unchecked"}},
		"a changed bundle": {change: func(_ *rig, s *Stated) {
			s.Bundle = json.RawMessage(strings.Replace(string(s.Bundle), `"payload":"`, `"payload":"A`, 1))
		}, want: []string{"statement-bundle-format"}},
		"no bundle":               {change: func(_ *rig, s *Stated) { s.Bundle = json.RawMessage(`{}`) }, want: []string{"statement-bundle-format"}},
		"another process":         {live: func(l *live) { l.PID++ }, want: []string{"observed-process", "statement-pid"}},
		"another boot":            {live: func(l *live) { l.BootID = "other" }, want: []string{"observed-process", "statement-boot-id"}},
		"a recycled pid":          {live: func(l *live) { l.Ticks++ }, want: []string{"observed-process", "statement-start-ticks"}},
		"another start":           {live: func(l *live) { l.ProcessStart++ }, want: []string{"statement-process-start"}},
		"another version":         {live: func(l *live) { l.Version = "9" }, want: []string{"statement-contract", "statement-engine-version", "statement-launch-digest"}},
		"another launch":          {live: func(l *live) { l.Launch = strings.Repeat("b", 64) }, want: []string{"statement-launch-digest"}},
		"no process":              {live: func(l *live) { l.PID, l.BootID, l.Ticks = 0, "", 0 }, want: []string{"observed-process", "statement-unchecked"}},
		"no observation":          {change: func(r *rig, _ *Stated) { delete(r.evidence, observedKey("e")) }, want: []string{"statement-unchecked"}},
		"half an observation":     {change: func(r *rig, _ *Stated) { r.observed(look.GPUs, nil) }, want: []string{"statement-unchecked"}},
		"another container":       {change: func(r *rig, _ *Stated) { r.observed(look.Container, was("x")) }, want: []string{"statement-container"}},
		"another checkpoint":      {change: func(r *rig, _ *Stated) { r.observed(look.Checkpoint, was("x")) }, want: []string{"statement-checkpoint"}},
		"another tokenizer":       {change: func(r *rig, _ *Stated) { r.observed(look.Tokenizer, was("x")) }, want: []string{"statement-tokenizer"}},
		"another command line":    {change: func(r *rig, _ *Stated) { r.observed(look.EngineConfig, was("x")) }, want: []string{"statement-engine-config"}},
		"another UCX":             {change: func(r *rig, _ *Stated) { r.observed(look.UCX, was("x")) }, want: []string{"statement-ucx-version"}},
		"another NIXL":            {change: func(r *rig, _ *Stated) { r.observed(look.NIXL, was("x")) }, want: []string{"statement-nixl-version"}},
		"a transport gone":        {change: func(r *rig, _ *Stated) { r.observed(look.Transports, was("rc_mlx5/mlx5_0:1")) }, want: []string{"statement-transports"}},
		"other GPUs":              {change: func(r *rig, _ *Stated) { r.observed(look.GPUs, was("GPU-1")) }, want: []string{"statement-gpus"}},
		"a model nobody can read": {fleet: withModel("/models/m"), change: func(r *rig, _ *Stated) { r.observed(look.Checkpoint, &look.Seen{Unknown: "denied"}) }, want: []string{"statement-launch-digest", "statement-unseen"}},
		"a model by its name":     {fleet: withModel("org/m"), change: func(r *rig, _ *Stated) { r.observed(look.Checkpoint, &look.Seen{Unknown: "denied"}) }},
		"another contract": {fleet: func(f *fleet.Fleet) { f.EngineContract = &fleet.Contract{EngineVersion: r.live.Version, KVHeads: 99} },
			want: []string{"statement-contract", "statement-launch-digest"}},
		"another connector":                {fleet: func(f *fleet.Fleet) { f.Engine.Connector = "mooncake" }, want: []string{"statement-contract", "statement-launch-digest"}},
		"no sidecar address":               {fleet: func(f *fleet.Fleet) { f.Engines[0].AttestationURL = "" }, want: []string{"sidecar-address"}},
		"a sidecar address without a port": {fleet: func(f *fleet.Fleet) { f.Engines[0].AttestationURL = "http://192.0.2.11/v1/attestation" }, want: []string{"sidecar-address"}},
	} {
		x := &rig{fleet: testFleet(), evidence: map[record.Key]any{}, live: r.live}
		x.fleet.Engines[0].URL = r.fleet.Engines[0].URL
		for k, v := range base {
			x.evidence[k] = v
		}
		if c.live != nil {
			c.live(&x.live)
			x.evidence[liveKey("e")] = x.live
		}
		if c.fleet != nil {
			c.fleet(&x.fleet)
		}
		s := good
		if c.change != nil {
			c.change(x, &s)
		}
		if got := x.judge(t, s); !slices.Equal(got, c.want) {
			t.Errorf("%s: found %v, want %v", name, got, c.want)
		}
	}
}

func withModel(dir string) func(*fleet.Fleet) {
	return func(f *fleet.Fleet) {
		f.Deploy.Launch["l"] = fleet.Launch{Kind: "process", Argv: []string{"x", "--model", dir}}
	}
}

func was(v string) *look.Seen { return &look.Seen{Is: []string{v}} }

// observed changes what was seen of the engine before its statement; nil takes it away.
func (r *rig) observed(name string, s *look.Seen) {
	o := r.evidence[observedKey("e")].(Observation)
	o.Observed = maps.Clone(o.Observed)
	delete(o.Observed, name)
	if s != nil {
		o.Observed[name] = *s
	}
	r.evidence[observedKey("e")] = o
}

// TestRefusalsOfTheHost asks after the host has changed under the engine.
func TestRefusalsOfTheHost(t *testing.T) {
	model := t.TempDir()
	put := func(name, text string, age time.Duration) {
		t.Helper()
		path := filepath.Join(model, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		at := time.Now().Add(-age)
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	put("config.json", "{}", time.Hour)
	put("tokenizer.json", "{}", time.Hour)
	put("w.safetensors", "1", time.Hour)
	r := newRigOf(t, func(f *fleet.Fleet) {
		f.Deploy.Launch["l"] = fleet.Launch{Kind: "process", Argv: []string{"x"}, ModelDir: model}
	})
	if got := r.judge(t, r.state(t)); len(got) != 0 {
		t.Fatalf("found %v", got)
	}
	put("w.safetensors", "2", time.Hour)
	// On a slow machine it is seen as well that the write came after the engine's start.
	if got := r.judge(t, r.state(t)); !slices.Contains(got, "statement-checkpoint") {
		t.Errorf("a changed weight: %v", got)
	}
	put("w.safetensors", "1", -time.Hour)
	if got := r.judge(t, r.state(t)); !slices.Equal(got, []string{"statement-changed-since-start"}) {
		t.Errorf("a weight that changed under the engine: %v", got)
	}
}

// TestAStatementIsMissing leaves it to the runner, which never passes then.
func TestAStatementIsMissing(t *testing.T) {
	r := newRig(t)
	v := view(t, r.fleet, r.evidence)
	state, missing := gates.Verdict(Gate{}, v, nil)
	if state != record.VerdictInconclusive || len(missing) != 1 || missing[0].Evidence != "E/statement/e" {
		t.Errorf("verdict %s, %v", state, missing)
	}
}

// TestSidecarOfAChangedEngine is asked after the engine was replaced under it.
func TestSidecarOfAChangedEngine(t *testing.T) {
	r := newRig(t)
	r.state(t)
	r.engine.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := ask(ctx, (&env{t: t, address: r.sidecar}).Dial, askArgs{Host: "h1", Address: "x:1"}, attest.NewNonce())
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

// TestAskOfSomethingElse meets answers that are no statement.
func TestAskOfSomethingElse(t *testing.T) {
	for name, h := range map[string]http.HandlerFunc{
		"a redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://192.0.2.1/", http.StatusTemporaryRedirect)
		},
		"no JSON":      func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) },
		"an error":     func(w http.ResponseWriter, _ *http.Request) { http.Error(w, `{"x":1}`, http.StatusTeapot) },
		"half of JSON": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"a":`)) },
	} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		srv := &http.Server{Handler: h, ReadHeaderTimeout: time.Second}
		done := make(chan struct{})
		go func() { defer close(done); _ = srv.Serve(l) }()
		ctx, cancel := context.WithTimeout(t.Context(), 250*time.Millisecond)
		if _, err := ask(ctx, (&env{t: t, address: l.Addr().String()}).Dial, askArgs{Host: "h1", Address: "x:1"}, attest.NewNonce()); err == nil {
			t.Errorf("%s was taken for a statement", name)
		}
		cancel()
		_ = srv.Close()
		<-done
	}
}

func TestFacts(t *testing.T) {
	b, err := json.Marshal(gates.Launched{Name: "sidecar-e", ID: "b:1:2", Launch: "l"})
	if err != nil {
		t.Fatal(err)
	}
	if got := (Gate{}).Facts(sidecarKey("e"), b); got["proc/sidecar-e/id"] != "b:1:2" || len(got) != 2 {
		t.Errorf("facts %v", got)
	}
	for k, b := range map[record.Key][]byte{sidecarKey("other"): b, statementKey("e"): b, sidecarKey("e"): []byte("x")} {
		if got := (Gate{}).Facts(k, b); got != nil {
			t.Errorf("%s: %v", k, got)
		}
	}
}
