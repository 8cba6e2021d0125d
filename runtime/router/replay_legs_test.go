package router

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/narwhal-fleet/narwhal/fleet"
)

// recordedLeg is one call as an engine of the recording received it.
type recordedLeg struct {
	IID     string            `json:"iid"`
	Path    string            `json:"path"`
	Headers map[string]string `json:"headers"`
	Body    map[string]any    `json:"body"`
}

// recordedLegs groups the log by case: the calls of one request carry its id, and the count
// of its prompt comes right before them. Calls of probes belong to no case.
func recordedLegs(t *testing.T) map[string][]recordedLeg {
	t.Helper()
	ids := map[string]string{}
	for _, file := range []string{"exchanges-success.jsonl", "errors.jsonl"} {
		for _, c := range replayCases(t, file) {
			ids[c.Response.Headers["x-request-id"]] = c.Case
		}
	}
	groups := map[string][]recordedLeg{}
	var count *recordedLeg
	d := json.NewDecoder(bytes.NewReader(replayFile(t, "upstream-legs.jsonl")))
	for d.More() {
		var l recordedLeg
		if err := d.Decode(&l); err != nil {
			t.Fatal(err)
		}
		if l.Path == "/tokenize" {
			count = &l
			if strings.Contains(fmt.Sprint(l.Body["prompt"]), "💣") {
				groups["count_rejected_by_engine"] = []recordedLeg{l}
			}
			continue
		}
		name := ids[l.Headers["x-request-id"][:min(36, len(l.Headers["x-request-id"]))]]
		if name == "" {
			continue
		}
		if count != nil {
			groups[name] = append(groups[name], *count)
			count = nil
		}
		groups[name] = append(groups[name], l)
	}
	return groups
}

// The same requests must reach the engines as the same calls: path, headers, body.
func TestReplayLegs(t *testing.T) {
	groups := recordedLegs(t)
	if len(groups) != 15 {
		t.Fatalf("%d recorded groups of legs", len(groups))
	}
	met := map[string]bool{}
	for _, file := range []string{"exchanges-success.jsonl", "errors.jsonl"} {
		for _, c := range replayCases(t, file) {
			if want := groups[c.Case]; want != nil {
				t.Run(c.Case, func(t *testing.T) { replayLegs(t, c, want, met) })
			}
		}
	}
	for _, d := range slices.Concat(legDifferences, legDefects) {
		if !met[d.name+" "+d.what] {
			t.Errorf("leg difference %s: %s was not met: remove it", d.name, d.what)
		}
	}
}

func replayLegs(t *testing.T, c replayCase, want []recordedLeg, met map[string]bool) {
	b := startCase(t, c.Case)
	b.send(c.Request)
	got := b.received()
	for i := range max(len(want), len(got)) {
		switch {
		case i >= len(got):
			noteLeg(t, met, legName(want[i].Path, want[i].Headers["x-request-id"]), "leg of "+c.Case+" → absent")
		case i >= len(want):
			noteLeg(t, met, legName(got[i].path, got[i].header.Get("X-Request-Id")), "leg of "+c.Case+" absent → present")
		default:
			for _, d := range legDiff(b, want[i], got[i]) {
				noteLeg(t, met, legName(want[i].Path, want[i].Headers["x-request-id"]), d)
			}
		}
	}
}

func noteLeg(t *testing.T, met map[string]bool, leg, what string) {
	t.Helper()
	key := leg + " " + what
	if !slices.ContainsFunc(slices.Concat(legDifferences, legDefects), func(d difference) bool { return d.name+" "+d.what == key }) {
		t.Errorf("%s leg: %s", leg, what)
	}
	met[key] = true
}

func legName(path, id string) string {
	if path == "/tokenize" {
		return "count"
	}
	return id[strings.LastIndexByte(id, '-')+1:]
}

// legDiff compares one call. Which engine counts is free; ids differ by nature.
func legDiff(b *replayBed, want recordedLeg, got scriptLeg) (list []string) {
	if want.Path != got.path {
		return []string{"path " + want.Path + " → " + got.path}
	}
	if want.IID != got.iid && got.path != "/tokenize" {
		list = append(list, "engine "+want.IID+" → "+got.iid)
	}
	for _, h := range []string{"content-type", "accept", "accept-encoding", "authorization"} {
		if w, g := want.Headers[h], got.header.Get(h); w != g {
			list = append(list, fmt.Sprintf("%s %s → %s", h, word(w), word(g)))
		}
	}
	// The id is <request id>-a<n>-<phase> on legs, absent on counts.
	w, g := want.Headers["x-request-id"], got.header.Get("X-Request-Id")
	if len(w) != len(g) || w[min(36, len(w)):] != g[min(36, len(g)):] {
		list = append(list, "x-request-id "+word(w)+" → "+word(g))
	}
	return append(list, valueDiff("body", named(want.Body), named(b.verified(got)))...)
}

// named puts the producer's name for a handoff.
func named(body map[string]any) map[string]any {
	if h, ok := body["kv_transfer_params"].(map[string]any); ok && h["remote_engine_id"] != nil {
		body["kv_transfer_params"] = h["remote_engine_id"]
	}
	return body
}

// verified checks that a handoff is, byte for byte, the one that the same attempt's prefill
// gave: the engine itself fails the test for any other.
func (b *replayBed) verified(l scriptLeg) map[string]any {
	h, _ := l.body["kv_transfer_params"].(map[string]any)
	id, _ := h["remote_request_id"].(string)
	if id == "" {
		return l.body
	}
	attempt := strings.TrimSuffix(l.header.Get("X-Request-Id"), "-decode")
	if !strings.HasSuffix(id, attempt+"-prefill-0") {
		b.t.Errorf("leg %s carries the handoff of %s", l.header.Get("X-Request-Id"), id)
	}
	return l.body
}

// The engine's key goes out on every call, a client's own credentials and id on none.
func TestReplayLegsCarryTheEngineKeyOnly(t *testing.T) {
	b := startReplay(t, rolesF1, false, func(c *Config) { c.EngineKey = fleet.NewSecret("engine-key") })
	r := completion(`{"prompt":"x","max_tokens":2}`)
	r.Headers = map[string]string{"Authorization": "Bearer client-key", "X-Api-Key": "client-key", "X-Request-Id": "client-id", "Cookie": "a=b"}
	if a := b.send(r); a.status != 200 || a.header.Get("X-Request-Id") == "client-id" {
		t.Fatalf("%d %v", a.status, a.header)
	}
	legs := b.received()
	if len(legs) != 3 {
		t.Fatalf("%d calls", len(legs))
	}
	for _, l := range legs {
		if l.header.Get("Authorization") != "Bearer engine-key" || l.header.Get("X-Api-Key") != "" || l.header.Get("X-Request-Id") == "client-id" || l.header.Get("Cookie") != "" {
			t.Errorf("%s: %v", l.path, l.header)
		}
	}
	if id := b.rows()[0].ClientRID; id == nil || *id != "client-id" {
		t.Errorf("client's id in the journal: %v", id)
	}
}
