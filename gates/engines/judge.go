package engines

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/runtime/engine"
)

// Judge checks each engine alone and then that all are alike.
func (Gate) Judge(v gates.View) []record.Finding {
	var out []record.Finding
	var first *seen
	for _, e := range v.Fleet.EngineIDs() {
		s := look(v, e)
		out = append(out, s.alone(v)...)
		if !s.whole {
			continue
		}
		if first == nil {
			first = &s
			continue
		}
		out = append(out, s.like(*first)...)
	}
	return out
}

// seen is the evidence of one engine.
type seen struct {
	iid, host string
	ports     Ports
	launch    gates.Launched
	live      Live
	cache     engine.CacheLayout
	has       map[string]bool
	whole     bool
}

func look(v gates.View, e string) seen {
	s := seen{iid: e, host: v.Fleet.HostOf(e), has: map[string]bool{}}
	s.has["ports"] = v.Decode(portsKey(e), &s.ports) == nil
	s.has["launch"] = v.Decode(launchKey(e), &s.launch) == nil
	s.has["live"] = v.Decode(liveKey(e), &s.live) == nil
	s.has["cache"] = v.Decode(cacheKey(e), &s.cache) == nil
	s.whole = s.has["live"] && s.has["cache"] && s.live.Ready
	return s
}

func (s seen) finding(code, key, want, got, hint string) record.Finding {
	want, got = engine.Printable(want, 400), engine.Printable(got, 400) // an engine's words may be in it
	return record.Finding{Code: code, Host: s.host, Engine: s.iid, Want: want, Got: got, Hint: hint, Evidence: string(record.NewKey("C", key, s.iid)),
		Message: fmt.Sprintf("engine %s on host %s: got %s, want %s", s.iid, s.host, got, want)}
}

// alone checks one engine by itself.
func (s seen) alone(v gates.View) []record.Finding {
	var out []record.Finding
	for _, t := range s.ports.Taken {
		out = append(out, s.finding("port-taken", "ports", "a free "+t.Address, t.Why, "stop what listens there (ss -ltnp on the host shows it) or give the engine another port"))
	}
	if !s.has["live"] {
		return out
	}
	if !s.live.Ready && len(s.live.Models) > 0 && !serves(s.live.Models, v.Fleet.Model) {
		return append(out, s.wrongModel(v.Fleet.Model))
	}
	if !s.live.Ready {
		f := s.finding("engine-not-ready", "live", "an engine that generates", s.live.Reason, hintFromLog(s.live.Log))
		return append(out, f)
	}
	out = append(out, s.identity()...)
	if !serves(s.live.Models, v.Fleet.Model) {
		out = append(out, s.wrongModel(v.Fleet.Model))
	}
	if c := v.Fleet.EngineContract; c != nil && c.EngineVersion != "" && c.EngineVersion != s.live.Version {
		out = append(out, s.finding("version-differs", "live", "version "+c.EngineVersion, s.live.Version, "install that version or change engine_contract.engine_version"))
	}
	if s.has["cache"] && s.cache.BytesPerBlock <= 0 {
		out = append(out, s.finding("cache-size-unknown", "cache", "the bytes of a block", "nothing that tells them", "an engine that shows no cache geometry needs engine_contract with kv_heads, head_size, hidden_layers, model_dtype and kv_cache_dtype"))
	}
	return out
}

func (s seen) wrongModel(want string) record.Finding {
	return s.finding("model-differs", "live", "model "+want, names(s.live.Models), "set --served-model-name in the launch, or model in the fleet file")
}

// startSlack is how much earlier than its launch an engine may say that it started: clocks
// are stepped.
const startSlack = time.Minute

// identity checks that who answers is who was launched. A restart by the same launch is
// the same engine; one that started before the launch is somebody else's.
func (s seen) identity() []record.Finding {
	var out []record.Finding
	if !s.has["launch"] {
		return nil
	}
	const hint = "stop what else listens on the engine's address, then narwhal gate run --again C"
	if s.live.Launch != s.launch.Launch {
		out = append(out, s.finding("engine-identity", "live", fmt.Sprintf("launch %.12s", s.launch.Launch), fmt.Sprintf("launch %.12s, pid %d", s.live.Launch, s.live.PID), hint))
	}
	if launched := float64(s.launch.Started.UnixNano()) / 1e9; s.live.ProcessStart < launched-startSlack.Seconds() {
		out = append(out, s.finding("engine-identity", "live", fmt.Sprintf("a process started at %.0f (seconds since 1970)", launched), fmt.Sprintf("one started at %.0f", s.live.ProcessStart), hint))
	}
	return out
}

// like compares an engine with the first one.
func (s seen) like(o seen) []record.Finding {
	var out []record.Finding
	diff := func(code, key, want, got string) {
		out = append(out, s.finding(code, key, want+" as "+o.iid, got, "launch all engines of a fleet alike"))
	}
	if s.live.Version != o.live.Version {
		diff("versions-differ", "live", o.live.Version, s.live.Version)
	}
	if a, b := rootOf(s.live.Models), rootOf(o.live.Models); a != b {
		diff("model-path-differs", "live", b, a)
	}
	if !reflect.DeepEqual(s.live.ProbeTokens, o.live.ProbeTokens) || s.live.ProbeText != o.live.ProbeText {
		diff("output-differs", "live", fmt.Sprintf("%.60q", o.live.ProbeText), fmt.Sprintf("%.60q", s.live.ProbeText))
	}
	a, b := s.cache, o.cache
	if a.BlockSize != b.BlockSize || a.Dtype != b.Dtype || a.BytesPerBlock != b.BytesPerBlock || !reflect.DeepEqual(a.Geometry, b.Geometry) {
		diff("cache-layout-differs", "cache", layout(b), layout(a))
	}
	return out
}

func layout(c engine.CacheLayout) string {
	return fmt.Sprintf("%d tokens and %d bytes a block, %s", c.BlockSize, c.BytesPerBlock, c.Dtype)
}

func serves(models []engine.Model, name string) bool {
	for _, m := range models {
		if m.ID == name {
			return true
		}
	}
	return false
}

func names(models []engine.Model) string {
	var ids []string
	for _, m := range models {
		ids = append(ids, m.ID)
	}
	if len(ids) == 0 {
		return "no model"
	}
	return strings.Join(ids, ", ")
}

func rootOf(models []engine.Model) string {
	if len(models) == 0 || models[0].Root == "" {
		return "no model path"
	}
	return models[0].Root
}

// causes maps what engines print to what a person should do.
var causes = []struct{ line, hint string }{
	{"out of memory", "the GPU has too little memory: lower --gpu-memory-utilization or the context length"},
	{"address already in use", "another process holds a port: ss -ltnp on the host shows it"},
	{"unrecognized arguments", "the engine does not know an argument of its launch"},
	{"No such file or directory", "a path in the launch does not exist on the host"},
	{"executable file not found", "the launch's program is not on the host's PATH"},
}

func hintFromLog(log string) string {
	for _, c := range causes {
		if strings.Contains(strings.ToLower(log), strings.ToLower(c.line)) {
			return c.hint
		}
	}
	if log == "" {
		return "look at the engine's log in its host's run folder"
	}
	return "the end of its log: " + lastLine(log)
}

func lastLine(log string) string {
	lines := strings.Split(strings.TrimSpace(log), "\n")
	return engine.Printable(lines[len(lines)-1], 200)
}
