package serve

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/fleet/remote"
)

// TestRing keeps what a pair could not do beside what the others did.
func TestRing(t *testing.T) {
	for name, c := range map[string]struct {
		res  remote.Result
		err  error
		want string
	}{
		"handed over": {res: remote.Result{Stdout: []byte(`{"from":"x","split_token_ids":[1],"unsplit_token_ids":[1],"external_kv_tokens":9,"error":"no"}`)}},
		"refused":     {err: errors.New("exit 1"), res: remote.Result{Stderr: []byte("decode: status 500\x1b[2J")}, want: "status 500"},
		"no answer":   {res: remote.Result{Stdout: []byte("ok")}, want: "is none"},
	} {
		e := newEnv(t, testFleet(), nil)
		e.handoff = func(from, _ string) (remote.Result, error) {
			if from == "p0" {
				return c.res, c.err
			}
			return remote.Result{Stdout: []byte(`{"split_token_ids":[1],"unsplit_token_ids":[1],"external_kv_tokens":9}`)}, nil
		}
		b, err := Gate{}.Locals()["ring"](limited(t), e, nil)
		var r Ring
		if err != nil || json.Unmarshal(b, &r) != nil || len(r.Pairs) != 2 || r.Pairs[0].From != "p0" || r.Pairs[1].To != "p0" || r.Pairs[1].trouble() != "" {
			t.Fatalf("%s: %s, %v", name, b, err)
		}
		if got := r.Pairs[0].trouble(); (got == "") != (c.want == "") || !strings.Contains(got, c.want) || strings.ContainsRune(got, 0x1b) {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// TestRingSendsTheKey in the environment of its commands, and hands nothing over without one that
// the fleet names.
func TestRingSendsTheKey(t *testing.T) {
	f := testFleet()
	f.Engine.EngineAPIKeyEnv = "RING_KEY"
	for name, c := range map[string]struct {
		secrets map[fleet.SecretRef]string
		want    string
	}{
		"set":   {secrets: map[fleet.SecretRef]string{"env:RING_KEY": "k-7"}},
		"unset": {want: "engines' key"},
	} {
		e := newEnv(t, f, nil)
		e.secrets = c.secrets
		e.handoff = func(string, string) (remote.Result, error) {
			return remote.Result{Stdout: []byte(`{"split_token_ids":[1],"unsplit_token_ids":[1],"external_kv_tokens":9}`)}, nil
		}
		b, err := Gate{}.Locals()["ring"](limited(t), e, nil)
		var r Ring
		if err != nil || json.Unmarshal(b, &r) != nil || len(r.Pairs) != 2 {
			t.Fatalf("%s: %s, %v", name, b, err)
		}
		for _, p := range r.Pairs {
			if got := p.trouble(); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
				t.Errorf("%s: %q", name, got)
			}
		}
		sent, ok := e.sent["RING_KEY"]
		if ok != (c.want == "") || ok && sent.Reveal() != "k-7" {
			t.Errorf("%s: sent %v", name, e.sent)
		}
		for _, p := range ringPairs(f) {
			if argv := strings.Join(ringArgv(f, p), " "); strings.Contains(argv, "k-7") || !strings.Contains(argv, `"key":"RING_KEY"`) {
				t.Errorf("%s: asks %s", name, argv)
			}
		}
	}
}

// TestRingRounds: every pair once, and no engine twice in a round.
func TestRingRounds(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var f fleet.Fleet
		for i := range rapid.IntRange(0, 20).Draw(rt, "engines") {
			f.Engines = append(f.Engines, fleet.Engine{IID: fmt.Sprint("e", i)})
		}
		pairs := ringPairs(f)
		if want := len(f.Engines); len(pairs) != want && !(want == 1 && len(pairs) == 0) {
			rt.Fatalf("%d pairs of %d engines", len(pairs), want)
		}
		all := map[int]bool{}
		for _, round := range ringRounds(len(pairs)) {
			busy := map[string]bool{}
			for _, i := range round {
				for _, e := range pairs[i] {
					if busy[e.IID] {
						rt.Fatalf("%s stands twice in %v", e.IID, round)
					}
					busy[e.IID] = true
				}
				all[i] = true
			}
		}
		if len(all) != len(pairs) {
			rt.Fatalf("%d of %d pairs asked", len(all), len(pairs))
		}
	})
}
