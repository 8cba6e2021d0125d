package attest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/narwhal-fleet/narwhal/fleet"
)

func TestVerifyEngine(t *testing.T) {
	s, other := keys()
	e := startEngine(t)
	side, srv := startSidecar(t, e, s)
	me, err := ProcessIdentity(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	me.Version, me.ProcessStart = "0.30.0", 1764442262
	contract := testContract()
	nonce := NewNonce()
	policy := EnginePolicy{Key: s.Public(), Nonce: nonce, Contract: &contract, Identity: me, LaunchDigest: side.Response().LaunchDigest, AnyObserved: true}
	bundle, err := RequestStatement(context.Background(), nil, srv.URL, nonce)
	if err != nil {
		t.Fatal(err)
	}
	claim, err := VerifyEngine(bundle, policy)
	if err != nil || claim.Identity != me || claim.Response.Digest != side.Response().Digest {
		t.Fatalf("claim %+v: %v", claim, err)
	}
	changed := func(change func(*fleet.Contract)) *fleet.Contract { c := testContract(); change(&c); return &c }
	cases := map[string]struct {
		change func(*EnginePolicy)
		want   []error
	}{
		"wrong key":     {func(p *EnginePolicy) { p.Key = other.Public() }, []error{ErrUnknownKey}},
		"replay":        {func(p *EnginePolicy) { p.Nonce = NewNonce() }, []error{ErrNonce}},
		"contract text": {func(p *EnginePolicy) { p.Contract = changed(func(c *fleet.Contract) { c.KVCacheDtype = "fp8" }) }, []error{ErrContract}},
		"contract null": {func(p *EnginePolicy) {
			p.Contract = changed(func(c *fleet.Contract) { c.EnforceHandshakeCompat = nil })
		}, []error{ErrContract}},
		"two fields":        {func(p *EnginePolicy) { p.Contract = changed(func(c *fleet.Contract) { c.KVHeads, c.HeadSize = 1, 2 }) }, []error{ErrContract, ErrContract}},
		"process start":     {func(p *EnginePolicy) { p.Identity.ProcessStart += 1e-3 }, []error{ErrProcessStart}},
		"version":           {func(p *EnginePolicy) { p.Identity.Version = "0.30.1" }, []error{ErrEngineVersion}},
		"boot id":           {func(p *EnginePolicy) { p.Identity.BootID = "b" }, []error{ErrBootID}},
		"pid":               {func(p *EnginePolicy) { p.Identity.PID++ }, []error{ErrPID}},
		"start ticks":       {func(p *EnginePolicy) { p.Identity.StartTicks++ }, []error{ErrStartTicks}},
		"launch":            {func(p *EnginePolicy) { p.LaunchDigest = "sha256:x" }, []error{ErrLaunch}},
		"several":           {func(p *EnginePolicy) { p.Nonce = NewNonce(); p.LaunchDigest = "x"; p.Identity.PID++ }, []error{ErrNonce, ErrPID, ErrLaunch}},
		"open key":          {func(p *EnginePolicy) { p.Key = nil }, []error{ErrPolicy}},
		"open nonce":        {func(p *EnginePolicy) { p.Nonce = "" }, []error{ErrPolicy}},
		"open contract":     {func(p *EnginePolicy) { p.Contract = nil }, []error{ErrPolicy}},
		"open identity":     {func(p *EnginePolicy) { p.Identity = EngineIdentity{} }, []error{ErrPolicy}},
		"open process":      {func(p *EnginePolicy) { p.Identity.BootID = "" }, []error{ErrPolicy}},
		"open launch":       {func(p *EnginePolicy) { p.LaunchDigest = "" }, []error{ErrPolicy}},
		"open observation":  {func(p *EnginePolicy) { p.AnyObserved = false }, []error{ErrPolicy}},
		"contradicts":       {func(p *EnginePolicy) { p.AnyContract = true }, []error{ErrPolicy}},
		"left open, loudly": {func(p *EnginePolicy) { p.Contract, p.AnyContract, p.LaunchDigest, p.AnyLaunch = nil, true, "", true }, nil},
		"start within 1 µs": {func(p *EnginePolicy) { p.Identity.ProcessStart += 5e-7 }, nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			p := policy
			c.change(&p)
			_, err := VerifyEngine(bundle, p)
			var want []string
			for _, w := range c.want {
				if !errors.Is(err, w) {
					t.Fatalf("%v; want %v", err, w)
				}
				want = append(want, Codes(w)...)
			}
			if (err == nil) != (c.want == nil) || !slices.Equal(Codes(err), want) {
				t.Fatalf("%v with codes %v; want %v", err, Codes(err), want)
			}
		})
	}
}

// TestEngineStatementMustFitItself signs, with the right key, what a sidecar never says.
func TestEngineStatementMustFitItself(t *testing.T) {
	s, _ := keys()
	nonce := NewNonce()
	r, err := NewResponse(testDocument(), "0.30.0", 5)
	if err != nil {
		t.Fatal(err)
	}
	body, err := r.JSON()
	if err != nil {
		t.Fatal(err)
	}
	policy := EnginePolicy{Key: s.Public(), Nonce: nonce, AnyContract: true, AnyLaunch: true, AnyProcess: true, AnyObserved: true, Identity: EngineIdentity{Version: "0.30.0", ProcessStart: 5}}
	sign := func(subject, typ, predicate string) []byte {
		return mustSign(t, s, Statement{Subject: []Subject{SHA256Subject(EngineSubject, subject)}, PredicateType: typ, Predicate: json.RawMessage(predicate)})
	}
	good := fmt.Sprintf(`{"nonce":%q,"attestation":%s}`, nonce, body)
	if _, err := VerifyEngine(sign(r.Digest, PredicateEngine, good), policy); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		bundle []byte
		want   error
	}{
		"other subject":   {sign(strings.Repeat("a", 64), PredicateEngine, good), ErrSubject},
		"other predicate": {sign(r.Digest, testPredicate, good), ErrPredicateType},
		"changed inside":  {sign(r.Digest, PredicateEngine, strings.Replace(good, `"kv_heads":0`, `"kv_heads":8`, 1)), ErrDocument},
		"no attestation":  {sign(r.Digest, PredicateEngine, `{"nonce":"`+nonce+`"}`), ErrDocument},
		"another key":     {sign(r.Digest, PredicateEngine, `{"more":1,`+good[1:]), ErrDocument},
	} {
		if _, err := VerifyEngine(c.bundle, policy); !errors.Is(err, c.want) {
			t.Errorf("%s: %v; want %v", name, err, c.want)
		}
	}
	policy.AnyProcess = false
	policy.Identity.PID, policy.Identity.BootID, policy.Identity.StartTicks = 1, "b", 1
	if _, err := VerifyEngine(sign(r.Digest, PredicateEngine, good), policy); !errors.Is(err, ErrBootID) {
		t.Errorf("no process in the statement, one wanted: %v", err)
	}
}
