package main

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/narwhal-fleet/narwhal/internal/problem"
	"github.com/narwhal-fleet/narwhal/runtime/engine"
	"github.com/narwhal-fleet/narwhal/runtime/engine/simulated"
	"github.com/narwhal-fleet/narwhal/runtime/lifecycle"
	"github.com/narwhal-fleet/narwhal/runtime/profile"
	"github.com/narwhal-fleet/narwhal/runtime/router"
)

// startedAnew makes an engine answer as a process that started earlier by so many seconds.
func (p *plainFleet) startedAnew(i int, seconds float64) {
	p.t.Helper()
	if err := p.engines[i].Inject(simulated.Injection{Kind: "clock", Factor: seconds}); err != nil {
		p.t.Fatal(err)
	}
}

// measuredAnew binds the row of an engine to the process that answers now.
func (p *plainFleet) measuredAnew(i int) {
	p.t.Helper()
	c, err := engine.NewClient(p.engines[i].URL(), engine.Options{})
	if err != nil {
		p.t.Fatal(err)
	}
	defer c.Close()
	id, err := c.Identity(p.t.Context())
	if err != nil {
		p.t.Fatal(err)
	}
	digest := router.IdentityDigest(id)
	p.editProfiles(func(rows []profile.Row) {
		for j := range rows {
			if rows[j].IID == []string{"p0", "d0"}[i] {
				rows[j].GenerationDigest = &digest
			}
		}
	})
}

// TestEnginesActivate takes an engine back that was started anew: nothing but a new profile mends it, each
// answer names the next command, and the router serves on.
func TestEnginesActivate(t *testing.T) {
	p := newPlainFleet(t)
	_, addr := p.serve()
	url := "http://" + addr
	says := func(code int, args string, want ...string) {
		t.Helper()
		words := strings.Fields(args)
		at := len(words)
		for i, w := range words {
			if w == "--" {
				at = i
			}
		}
		r := enginesBefore(t, append(append(append([]string{}, words[:at]...), "--url", url), words[at:]...))
		if r.code != code {
			t.Errorf("%s: exit %d, want %d\n%s%s", args, r.code, code, r.out, r.err)
		}
		for _, s := range want {
			if !strings.Contains(r.out+r.err, s) {
				t.Errorf("%s: %q is missing in\n%s%s", args, s, r.out, r.err)
			}
		}
	}
	way := "narwhal profile -f FLEET --only d0 --overwrite, then narwhal engines activate d0"
	says(0, "drain d0 --wait")
	p.startedAnew(1, 100)
	says(1, "restart d0 -- true", "is of another generation", "hint: waiting does not mend this", way+", then narwhal engines readmit d0")
	says(1, "readmit d0 --wait", "is of another generation", way+", then narwhal engines readmit d0")
	says(1, "readmit d0", way)
	says(0, "activate d0", "d0  has the profile of the store; narwhal engines readmit d0 takes it back")
	says(1, "readmit d0 --wait", way) // the row is of the process before
	p.measuredAnew(1)
	sum := fmt.Sprintf("%x", sha256.Sum256(p.read("profiles.json")))
	for _, c := range []struct {
		code       int
		args, says string
	}{
		{2, "activate", "needs an engine's id"},
		{2, "activate d0 --all", "both given"},
		{2, "activate d0 --sha256 ab", "is no SHA-256"},
		{2, "activate d0 --sha256 " + strings.ToUpper(sum), "is no SHA-256"},
		{2, "activate d0 x9", "hint: known: d0, p0"},
		{6, "activate d0 --sha256 " + strings.Repeat("0", 64), "the router's store is another file"},
		{0, "activate d0 p0 --sha256 " + sum, "p0  has the profile of the store; serves"},
		{0, "activate --all", "d0  has the profile"},
		{0, "activate --wave", "d0  has the profile"},
		{0, "readmit d0 --wait", "d0  active"},
	} {
		says(c.code, c.args, c.says)
	}

	// An engine that restarts while it serves is ejected, and returns by itself once its profile is of it.
	refuses := func(on bool) {
		t.Helper()
		if err := p.engines[1].Inject(simulated.Injection{Kind: "refuse", On: &on}); err != nil {
			t.Fatal(err)
		}
	}
	p.startedAnew(1, 200)
	refuses(true)
	await(t, "d0 to be ejected", func() bool { return listed(t, url).Engines[0].Ejected })
	refuses(false)
	says(6, "readmit d0", "no order holds it", "it is out, ejected: ", "hint: the router takes it back by itself once it passes: narwhal check -f FLEET --only d0", way)
	says(6, "release d0", "it is out, ejected: ")
	if l := listed(t, url).Engines[0]; l.Start == nil || l.Live {
		t.Errorf("%+v", l)
	}
	for line := range strings.Lines(enginesRun(t, "list", "--url", url).out) {
		if f := strings.Fields(line); f[0] == "d0" && f[6] != "-" {
			t.Errorf("the start of a process that is gone: %s", line)
		}
	}
	p.measuredAnew(1)
	says(0, "activate d0", "d0  has the profile of the store; the router takes it back by itself once it passes")
	await(t, "d0 to serve", func() bool { return listed(t, url).Engines[0].Live })

	// A store of no use is refused, and one of another process for an engine that serves.
	other := "sha256:" + strings.Repeat("0f", 32)
	p.editProfiles(func(rows []profile.Row) { rows[0].GenerationDigest, rows[1].GenerationDigest = &other, &other })
	says(6, "activate d0", "drain it first", "hint: ")
	if err := os.WriteFile(filepath.Join(p.dir, "profiles.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	says(6, "activate d0", "read profile store")
}

// TestEnginesActivateRefusals: a store that cannot be read is not a router that may not.
func TestEnginesActivateRefusals(t *testing.T) {
	for status, code := range map[int]string{http.StatusServiceUnavailable: "profiles_unreadable", http.StatusConflict: "order_refused"} {
		err := (&reached{}).notActivated(t.Context(), lifecycle.Target{IID: "d1"}, []string{"d1"}, lifecycle.Document{}, &lifecycle.Refusal{Status: status, Reason: "no"})
		if p := problem.All(err)[0]; p.Code != code || p.Hint == "" || !strings.Contains(p.Message, "profiles of d1: no") {
			t.Errorf("%d: %+v", status, p)
		}
	}
}
