package attest

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"

	"github.com/narwhal-fleet/narwhal/attest/canonical"
	"github.com/narwhal-fleet/narwhal/attest/look"
	"github.com/narwhal-fleet/narwhal/fleet"
)

// EnginePolicy says what an engine's statement must show. Every choice must be
// made: each field is given, or its Any field says that it is left open.
type EnginePolicy struct {
	Key   *Public // the sidecar's, from its install
	Nonce string  // asked just now; hex
	// Contract is compared field by field.
	Contract    *fleet.Contract
	AnyContract bool
	// Identity is compared with the statement: version and process start (within
	// 1 µs), and unless AnyProcess also pid, boot id and start ticks.
	Identity   EngineIdentity
	AnyProcess bool
	// LaunchDigest is compared as text; "" with AnyLaunch leaves it open.
	LaunchDigest string
	AnyLaunch    bool
	// Observed is what was seen of the process on its host before; AnyObserved leaves
	// it open. Who listens, and files that changed under the engine, count either way.
	Observed    look.Observed
	AnyObserved bool
}

// EngineClaim is what a verified statement says about an engine.
type EngineClaim struct {
	Response Response
	Identity EngineIdentity
	Nonce    string
	Observed look.Observed // nil for none
}

const startTolerance = 1e-6 // seconds, as in the reference

// NewNonce returns 32 random bytes in hex.
func NewNonce() string {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails, as crypto/rand documents
	return hex.EncodeToString(b[:])
}

func (p EnginePolicy) check() error {
	open := func(what string) error { return fmt.Errorf("verify engine: %w: %s", ErrPolicy, what) }
	switch {
	case p.Key == nil:
		return open("no key is trusted")
	case checkNonce(p.Nonce) != nil:
		return open("no usable nonce")
	case (p.Contract == nil) != p.AnyContract:
		return open("either a contract or AnyContract")
	case p.Identity.Version == "" || !finitePositive(p.Identity.ProcessStart):
		return open("no version or process start")
	case (p.Identity.PID == 0 || p.Identity.BootID == "" || p.Identity.StartTicks == 0) != p.AnyProcess:
		return open("either pid, boot id and start ticks, or AnyProcess")
	case (p.LaunchDigest == "") != p.AnyLaunch:
		return open("either a launch digest or AnyLaunch")
	case (p.Observed == nil) != p.AnyObserved:
		return open("either an observation or AnyObserved")
	}
	return nil
}

// VerifyEngine checks an engine's statement. A bundle that cannot be believed at
// all gives one refusal; one that can but says something else gives all
// differences joined, each with its own sentinel (see Codes).
func VerifyEngine(bundle []byte, p EnginePolicy) (EngineClaim, error) {
	if err := p.check(); err != nil {
		return EngineClaim{}, err
	}
	v, err := NewVerifier(Policy{Keys: []*Public{p.Key}, PredicateTypes: []string{PredicateEngine}, AnySubject: true})
	if err != nil {
		return EngineClaim{}, fmt.Errorf("verify engine: %w", err)
	}
	got, err := v.Verify(bundle)
	if err != nil {
		return EngineClaim{}, fmt.Errorf("verify engine: %w", err)
	}
	claim, err := claimOf(got.Statement)
	if err != nil {
		return EngineClaim{}, fmt.Errorf("verify engine: %w", err)
	}
	if err := errors.Join(p.differences(claim)...); err != nil {
		return EngineClaim{}, fmt.Errorf("verify engine: %w", err)
	}
	return claim, nil
}

// claimOf reads the predicate and compares the subject with the digest recomputed from it.
func claimOf(st Statement) (EngineClaim, error) {
	tree, err := canonical.ParseObject(st.Predicate)
	if err == nil {
		err = onlyKeys(tree, []string{"nonce", "attestation"}, "process", "observed")
	}
	var p enginePredicate
	if err == nil {
		err = json.Unmarshal(st.Predicate, &p)
	}
	if err != nil {
		return EngineClaim{}, fmt.Errorf("read predicate: %w: %w", ErrDocument, err)
	}
	r, err := ParseResponse(p.Attestation)
	if err != nil {
		return EngineClaim{}, err
	}
	if err := matchSubjects([]Subject{SHA256Subject(EngineSubject, r.Digest)}, st.Subject); err != nil {
		return EngineClaim{}, err
	}
	if p.Observed != nil {
		if err := p.Observed.Check(); err != nil {
			return EngineClaim{}, fmt.Errorf("read predicate: %w: %w", ErrDocument, err)
		}
	}
	claim := EngineClaim{Response: r, Nonce: p.Nonce, Observed: p.Observed, Identity: EngineIdentity{Version: r.EngineVersion, ProcessStart: r.ProcessStart}}
	if p.Process != nil {
		claim.Identity.PID, claim.Identity.BootID, claim.Identity.StartTicks = p.Process.PID, p.Process.BootID, p.Process.StartTicks
	}
	return claim, nil
}

func (p EnginePolicy) differences(c EngineClaim) []error {
	var out []error
	differ := func(kind error, want, got any) {
		out = append(out, fmt.Errorf("%w: want %s, got %s", kind, clip(fmt.Sprint(want)), clip(fmt.Sprint(got))))
	}
	if c.Nonce != p.Nonce {
		differ(ErrNonce, p.Nonce, c.Nonce)
	}
	if p.Contract != nil {
		out = append(out, contractDifferences(*p.Contract, c.Response.Contract)...)
	}
	want, got := p.Identity, c.Identity
	if want.Version != got.Version {
		differ(ErrEngineVersion, want.Version, got.Version)
	}
	if math.Abs(want.ProcessStart-got.ProcessStart) > startTolerance {
		differ(ErrProcessStart, want.ProcessStart, got.ProcessStart)
	}
	if !p.AnyProcess {
		if want.BootID != got.BootID {
			differ(ErrBootID, want.BootID, got.BootID)
		}
		if want.PID != got.PID {
			differ(ErrPID, want.PID, got.PID)
		}
		if want.StartTicks != got.StartTicks {
			differ(ErrStartTicks, want.StartTicks, got.StartTicks)
		}
	}
	if !p.AnyLaunch && p.LaunchDigest != c.Response.LaunchDigest {
		differ(ErrLaunch, p.LaunchDigest, c.Response.LaunchDigest)
	}
	return append(out, p.unlike(c.Observed)...)
}

// RequestStatement asks a sidecar (http://address:port) for a statement over the
// nonce. What it returns is bounded and not yet verified. client nil = a client
// with a 5 s limit.
func RequestStatement(ctx context.Context, client *http.Client, base, nonce string) ([]byte, error) {
	if client == nil {
		client = identityClient
	}
	body, err := json.Marshal(map[string]string{"nonce": nonce})
	if err != nil {
		return nil, fmt.Errorf("request statement: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/v1/statement", bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("request statement: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("request statement: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("request statement: the sidecar answered %d", resp.StatusCode)
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, MaxBundle+1))
	if err != nil {
		return nil, fmt.Errorf("request statement: %w", err)
	}
	if len(b) > MaxBundle {
		return nil, fmt.Errorf("request statement: %w", ErrTooLarge)
	}
	return b, nil
}
