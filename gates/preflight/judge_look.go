package preflight

import (
	"fmt"
	"slices"

	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/runtime/profile"
)

// slowFrom is how much slower than its peers, or than its own curve, an engine may be.
const slowFrom = 1.5

// leastPeers is from how many equal engines on one of them stands out.
const leastPeers = 3

// judgeLooks judges every engine's answers, and compares them: unequal engines may answer a
// handed over request with 200 and wrong tokens.
func judgeLooks(v gates.View) []record.Finding {
	looks := map[string]Looked{}
	var ids []string
	for _, e := range v.Fleet.EngineIDs() {
		var l Looked
		if v.Decode(LookKey(e), &l) == nil {
			looks[e], ids = l, append(ids, e)
		}
	}
	var out []record.Finding
	for _, e := range ids {
		x := &finder{fleet: v.Fleet, engine: e, evidence: LookKey(e)}
		judgeLook(x, looks[e])
		out = append(out, x.found...)
	}
	for _, c := range compared {
		want, of := common(ids, looks, c.of)
		for _, e := range ids {
			if got := c.of(looks[e]); got != "" && got != want {
				x := &finder{fleet: v.Fleet, engine: e, evidence: LookKey(e)}
				x.add(c.Code, fmt.Sprintf("%s %s, as %d of %d engines have", c.what, want, of, len(ids)), got, c.hint)
				out = append(out, x.found...)
			}
		}
	}
	if c := v.Fleet.EngineContract; c != nil && c.EngineVersion != "" {
		for _, e := range ids {
			if got := looks[e].Version; got != "" && got != c.EngineVersion {
				x := &finder{fleet: v.Fleet, engine: e, evidence: LookKey(e)}
				x.add("version-differs", "version "+c.EngineVersion+" of engine_contract", got, "install that version, or attest the one that runs")
				out = append(out, x.found...)
			}
		}
	}
	return append(out, judgePace(v, ids, looks)...)
}

func judgeLook(x *finder, l Looked) {
	model := x.fleet.Model
	for _, c := range []struct {
		check, want, hint string
		Code              string
	}{
		{Code: "engine-unreachable", check: checkReach, want: "an answer of /health", hint: "see the engine's log; a frozen process keeps its port open"},
		{Code: "engine-not-ready", check: checkReady, want: "an engine that takes requests", hint: "it drains, sleeps or is paused: readmit, wake or resume it"},
		{Code: "engine-unidentified", check: checkIdentity, want: "its version and process start", hint: "open the engine's /version and /metrics to this host"},
		{Code: "layout-unknown", check: checkLayout, want: "the shape of its cache", hint: "open the engine's /metrics to this host"},
		{Code: "tokenizer-silent", check: checkTokenize, want: "the tokens of a text", hint: "let the engine serve /tokenize: lengths are counted by it"},
		{Code: "pace-unknown", check: checkPace, want: "the time of a cold prefill", hint: "the engine refuses plain completions: see its log"},
		{Code: "model-missing", check: checkModel, want: "a list of served models", hint: "see the engine's log"},
	} {
		if why := l.Failed[c.check]; why != "" {
			x.add(c.Code, c.want, why, c.hint)
		}
	}
	if l.Failed[checkReach] == "" && l.Failed[checkModel] == "" && !slices.Contains(l.Models, model) {
		x.add("model-missing", "model "+model, fmt.Sprintf("%v", l.Models), "start the engine with that served model name, or name another in the fleet file")
	}
}

// compared are the values that must be equal on all engines. An empty one is found elsewhere.
var compared = []struct {
	Code, what, hint string
	of               func(Looked) string
}{
	{Code: "block-size-differs", what: "block size", hint: "start the engines with one --block-size: a consumer with larger blocks answers 200 with other tokens", of: func(l Looked) string { return number(l.Block) }},
	{Code: "model-path-differs", what: "model path", hint: "start the engines with one path string: it is part of the handshake", of: func(l Looked) string { return l.Root }},
	{Code: "version-differs", what: "version", hint: "install one version on all hosts: two versions refuse each other, or read each other's KV wrongly", of: func(l Looked) string { return l.Version }},
	{Code: "cache-dtype-differs", what: "cache type", hint: "start the engines with one --kv-cache-dtype", of: func(l Looked) string { return l.Dtype }},
	{Code: "context-differs", what: "context of", hint: "start the engines with one --max-model-len: a prompt that one takes is refused by the next", of: func(l Looked) string { return number(l.Context) }},
	{Code: "tokenizer-differs", what: "token ids", hint: "compare the tokenizer files of the checkpoints: narwhal gate run --again A", of: func(l Looked) string { return l.TokenDigest }},
}

func number(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}

// common is the value that most engines have, the first of equals, and how many have it.
func common(ids []string, looks map[string]Looked, of func(Looked) string) (value string, count int) {
	counts := map[string]int{}
	for _, e := range ids {
		if v := of(looks[e]); v != "" {
			counts[v]++
		}
	}
	for _, e := range ids {
		if v := of(looks[e]); v != "" && counts[v] > count {
			value, count = v, counts[v]
		}
	}
	return value, count
}

// judgePace finds engines that are slower than equal ones or than their own curve says. Equal
// are those of one launch.
func judgePace(v gates.View, ids []string, looks map[string]Looked) []record.Finding {
	peers := map[string][]float64{}
	launch := map[string]string{}
	for _, e := range ids {
		if best := looks[e].best(); best > 0 {
			launch[e] = v.Fleet.Deploy.Engines[e].Launch
			peers[launch[e]] = append(peers[launch[e]], best)
		}
	}
	var out []record.Finding
	for _, e := range ids {
		best := looks[e].best()
		if best <= 0 {
			continue
		}
		x := &finder{fleet: v.Fleet, engine: e, evidence: LookKey(e)}
		if all := peers[launch[e]]; len(all) >= leastPeers && best > slowFrom*median(all) {
			x.add("slow-engine", fmt.Sprintf("at most %.1f times the %.3g s of the %d engines of its launch", slowFrom, median(all), len(all)), looks[e].told(), throttled)
		}
		var m Profiled
		if v.Decode(ProfileKey(e), &m) == nil {
			if curve, rep, err := m.fit(); err == nil && rep.PrefillFits() && judgeOwn(x, looks[e], curve) &&
				byChance(curve, m.Samples, best/curve.Prefill(looks[e].PaceTokens), len(looks[e].Pace)) >= 1-rareShare {
				x.noted() // the sweep met as long ones
			}
		}
		out = append(out, x.found...)
	}
	return out
}

// slowEngine is the code of an engine that is well, and slower than its peers.
const slowEngine = "slow-engine"

const throttled = "look for throttling (narwhal gate run --again A), another process on the device, a slower link or clock"

// told says the quickest pace.
func (l Looked) told() string {
	return fmt.Sprintf("%.3g s for %d tokens, the best of %d", l.best(), l.PaceTokens, len(l.Pace))
}

// judgeOwn holds an engine's pace against its own curve, and reports whether it is slower.
func judgeOwn(x *finder, l Looked, curve profile.Curve) bool {
	most := curve.Prefill(l.PaceTokens)
	slower := l.best() > slowFrom*most
	if slower {
		x.add("slower-than-profile", fmt.Sprintf("at most %.1f times the %.3g s of its own curve", slowFrom, most), l.told(), throttled+"; or the profile is of another state: narwhal gate run --again F")
	}
	return slower
}
