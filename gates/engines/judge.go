package engines

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/runtime/engine"
)

// Judge checks each engine alone and then that all are alike: those that differ from the
// largest group of equals are named.
func (Gate) Judge(v gates.View) []record.Finding {
	var out []record.Finding
	var all []seen
	for _, e := range v.Fleet.EngineIDs() {
		s := look(v, e)
		out = append(out, s.alone(v)...)
		if s.whole {
			all = append(all, s)
		}
	}
	usual := largest(all)
	for _, s := range all {
		out = append(out, s.like(usual)...)
	}
	return out
}

// largest returns the first engine of the largest group of engines that do not differ.
func largest(all []seen) seen {
	count := map[string]int{}
	for _, s := range all {
		count[s.group()]++
	}
	var best seen
	most := 0
	for _, s := range all {
		if n := count[s.group()]; n > most {
			best, most = s, n
		}
	}
	return best
}

// group is equal for engines that do not differ.
func (s seen) group() string {
	g := engine.Geometry{}
	if s.cache.Geometry != nil {
		g = *s.cache.Geometry
	}
	return fmt.Sprintf("%q %q %v %q %d %q %d %t %v", s.live.Version, rootOf(s.live.Models), s.live.ProbeTokens, s.live.ProbeText,
		s.cache.BlockSize, s.cache.Dtype, s.cache.BytesPerBlock, s.cache.Geometry != nil, g)
}

// seen is the evidence of one engine.
type seen struct {
	iid, host string
	ports     Ports
	launch    gates.Launched
	ranks     map[int]gates.Launched
	live      Live
	listener  Listener
	container Container
	cache     Cache
	listen    string
	has       map[string]bool
	whole     bool
}

func look(v gates.View, e string) seen {
	s := seen{iid: e, host: v.Fleet.HostOf(e), has: map[string]bool{}}
	s.has["ports"] = v.Decode(portsKey(e), &s.ports) == nil
	s.has["launch"] = v.Decode(launchKey(e), &s.launch) == nil
	s.ranks = map[int]gates.Launched{}
	if s.has["launch"] {
		s.ranks[0] = s.launch
	}
	for rank := 1; rank <= v.Fleet.Workers(e); rank++ {
		var l gates.Launched
		if v.Decode(rankKey(e, rank), &l) == nil {
			s.ranks[rank] = l
		}
	}
	s.has["live"] = v.Decode(liveKey(e), &s.live) == nil
	s.has["listener"] = v.Decode(listenerKey(e), &s.listener) == nil
	s.has["container"] = v.Decode(containerKey(e), &s.container) == nil
	if r, err := v.Fleet.Resolve(e); err == nil {
		s.listen = r.Listen
	}
	s.has["cache"] = v.Decode(cacheKey(e), &s.cache) == nil
	s.whole = s.has["live"] && s.has["cache"] && s.live.Ready
	return s
}

func (s seen) finding(code, key, want, got, hint string) record.Finding {
	want, got = engine.Printable(want, 400), engine.Printable(got, 400) // an engine's words may be in it
	return record.Finding{Code: code, Host: s.host, Engine: s.iid, Want: want, Got: got, Hint: hint, Evidence: string(record.NewKey("C", key, s.iid)),
		Message: fmt.Sprintf("engine %s on host %s: got %s, want %s", s.iid, s.host, got, want)}
}

// like compares an engine with the usual one.
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
		diff("cache-layout-differs", "cache", layout(b.CacheLayout), layout(a.CacheLayout))
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
