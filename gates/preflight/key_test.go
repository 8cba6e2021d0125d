package preflight

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/runtime/engine/simulated"
)

const (
	keyVariable = "TEST_ENGINE_KEY"
	keyValue    = "k-51c2f0"
)

// asks calls each host verb of the gate on engines that demand a key.
func asks(t *testing.T, variable string) map[string]error {
	t.Helper()
	locked := func() *simulated.Server {
		return boot(t, func(c *simulated.Config) { c.APIKey, c.LeaseS = fleet.NewSecret(keyValue), 0.7 })
	}
	p, d := locked(), locked()
	drill := drilled(p)
	drill.Key = variable
	requests := map[string]any{
		"engine-look": LookRequest{IID: "p0", URL: p.URL(), Dialect: "vllm", Model: "tiny", PaceTokens: 64, Key: variable},
		"engine-profile": ProfileRequest{IID: "p0", URL: p.URL(), Dialect: "vllm", Model: "tiny", Key: variable, Points: fleet.Profiling{
			PrefillTokens: []int{64}, PrefillRepeats: 1, DecodeRequests: []int{2}, DecodeTokens: []int{64}, OutputTokens: 8, Budget: 1}},
		"abort-drill": drill, "lease-drill": drill,
		"handoff": HandoffRequest{Dialect: "vllm", Model: "tiny", From: "p0", To: "d0", Prefill: p.URL(), Decode: d.URL(), Tokens: 64, Key: variable},
	}
	out := map[string]error{}
	for verb, do := range HostVerbs() {
		q, ok := requests[verb]
		if !ok {
			continue
		}
		b, err := json.Marshal(q)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := do(limited(t), b)
		told, _ := json.Marshal(answer)
		if strings.Contains(string(b)+string(told), keyValue) || err != nil && strings.Contains(err.Error(), keyValue) {
			t.Errorf("%s tells the key: %s, %s, %v", verb, b, told, err)
		}
		if l, ok := answer.(Looked); ok && len(l.Failed) > 0 {
			err = errors.New(l.Failed[checkModel])
		}
		out[verb] = err
		delete(requests, verb)
	}
	if len(requests) > 0 {
		t.Errorf("no verb for %v", requests)
	}
	return out
}

// TestEnginesWithAKey are refused without it and measured with it.
func TestEnginesWithAKey(t *testing.T) {
	t.Setenv(keyVariable, keyValue)
	for verb, err := range asks(t, keyVariable) {
		if err != nil {
			t.Errorf("%s with the key: %v", verb, err)
		}
	}
	for verb, err := range asks(t, "") {
		if err == nil || !strings.Contains(err.Error(), "401") {
			t.Errorf("%s without the key: %v", verb, err)
		}
	}
}

// TestStepsCarryTheKey by its name alone, each that asks an engine.
func TestStepsCarryTheKey(t *testing.T) {
	f := testFleet()
	f.Deploy.Profile.LeaseDrill = true
	all := func() (out []gates.Step) {
		for _, e := range f.Engines {
			out = append(out, engineSteps(f, e)...)
		}
		return append(out, pairStep(f, "p0", "d0"))
	}
	for _, s := range all() {
		if len(s.Secrets) > 0 {
			t.Errorf("%s has %v of a fleet without a key", s.ID, s.Secrets)
		}
	}
	f.Engine.EngineAPIKeyEnv = keyVariable
	for _, s := range all() {
		if s.Secrets[keyVariable] != "env:"+keyVariable || len(s.Secrets) != 1 || !slices.ContainsFunc(s.Argv, func(a string) bool { return strings.Contains(a, `"key":"`+keyVariable+`"`) }) {
			t.Errorf("%s: %v %v", s.ID, s.Secrets, s.Argv)
		}
	}
}
