package conformance

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/narwhal-fleet/narwhal/runtime/engine"
	"github.com/narwhal-fleet/narwhal/runtime/engine/splice"
)

//go:embed testdata/sglang
var concurrentRecordings embed.FS

// leg is one request that an engine of a recorded pair received.
type leg struct {
	IID     string
	Method  string
	Path    string
	Headers map[string]string
	Body    json.RawMessage
}

// recordedLegs plays a recorded pair's requests: those of one room at once, moved to this pair's
// address. The recorded stream is what a router made of the decoding leg's, so it lacks token ids
// and names the stop reason as other engines do.
func (s *suite) recordedLegs(t *testing.T) {
	p, d := s.Pair(t)
	clients := map[string]*engine.Client{"p0": p, "d0": d}
	open := map[string]leg{}
	pairs := 0
	for _, l := range readLegs(t) {
		var meets struct {
			Room json.Number `json:"bootstrap_room"`
		}
		if len(l.Body) > 0 && string(l.Body) != "null" {
			if err := json.Unmarshal(l.Body, &meets); err != nil {
				t.Fatal(err)
			}
		}
		if meets.Room == "" {
			s.control(t, clients[l.IID], l)
			continue
		}
		first, ok := open[meets.Room.String()]
		if !ok {
			open[meets.Room.String()] = l
			continue
		}
		second := l
		if first.IID != "p0" {
			first, second = second, first
		}
		pairs++
		s.replayPair(t, p, d, first, second)
	}
	if pairs != 2 || len(open) != 2 {
		t.Fatalf("%d pairs of %d rooms", pairs, len(open))
	}
	s.idle(t, p, 0)
	s.idle(t, d, 0)
}

func readLegs(t *testing.T) (legs []leg) {
	t.Helper()
	raw, err := concurrentRecordings.ReadFile("testdata/sglang/legs.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	for dec.More() {
		var l leg
		if err := dec.Decode(&l); err != nil {
			t.Fatal(err)
		}
		legs = append(legs, l)
	}
	return legs
}

// control plays a request outside of rooms, which must succeed.
func (s *suite) control(t *testing.T, c *engine.Client, l leg) {
	t.Helper()
	var err error
	if l.Method == "GET" {
		err = c.GetJSON(s.limit(t), l.Path, nil)
	} else {
		err = c.PostJSON(s.limit(t), l.Path, json.RawMessage(s.renamed(l.Body)), nil)
	}
	if err != nil {
		t.Fatalf("%s %s: %v", l.Method, l.Path, err)
	}
}

func (s *suite) renamed(b []byte) string {
	return strings.ReplaceAll(string(b), "demo/model-1b", s.Model)
}

func (s *suite) moved(t *testing.T, p *engine.Client, l leg) []byte {
	t.Helper()
	o, err := splice.Parse([]byte(s.renamed(l.Body)))
	if err != nil {
		t.Fatal(err)
	}
	at := s.Meet(t, p)
	return o.Edit(nil, splice.Set{Key: "bootstrap_host", Value: fmt.Appendf(nil, "%q", at.Host)},
		splice.Set{Key: "bootstrap_port", Value: fmt.Append(nil, at.Port)})
}

func (s *suite) replayPair(t *testing.T, p, d *engine.Client, first, second leg) {
	t.Helper()
	ctx := s.limit(t)
	drained := make(chan error, 1)
	go func() { drained <- drain(ctx, p, first.Path, s.moved(t, p, first)) }()
	stream := s.open(ctx, t, d, second.Path, s.moved(t, p, second))
	defer stream.Close()
	raw, err := io.ReadAll(stream)
	if err != nil {
		t.Fatal(err)
	}
	if err := <-drained; err != nil {
		t.Fatal(err)
	}
	var asked struct {
		ID    string `json:"rid"`
		Limit int    `json:"max_tokens"`
	}
	if err := json.Unmarshal(second.Body, &asked); err != nil {
		t.Fatal(err)
	}
	got := collect(t, bytes.NewReader(raw))
	if len(got.ids) != asked.Limit || got.finish != "length" || !got.done || got.failed {
		t.Fatalf("%+v", got)
	}
	if asked.Limit == 3 {
		sameStream(t, raw, asked.ID)
	}
}

// sameStream compares a stream with the recorded one of as many tokens.
func sameStream(t *testing.T, raw []byte, id string) {
	t.Helper()
	want, err := concurrentRecordings.ReadFile("testdata/sglang/stream.sse")
	if err != nil {
		t.Fatal(err)
	}
	w, g := events(want), events(raw)
	if len(w) != len(g) {
		t.Fatalf("%d events, recorded %d", len(g), len(w))
	}
	for i := range w {
		if string(w[i]) == "[DONE]" {
			if string(g[i]) != "[DONE]" {
				t.Fatalf("event %d: %s", i, g[i])
			}
			continue
		}
		event, recorded := plain(t, g[i]), plain(t, w[i])
		if diff := shape("", recorded, event); diff != "" {
			t.Fatalf("event %d: %s\nrecorded %s\ngot      %s", i, diff, w[i], g[i])
		}
		if !strings.HasSuffix(recorded["id"].(string), event["id"].(string)) || event["id"] != id {
			t.Fatalf("event %d has the id %v", i, event["id"])
		}
	}
}

// plain is an event without what the recording router takes away.
func plain(t *testing.T, raw []byte) map[string]any {
	t.Helper()
	m := decoded(t, raw).(map[string]any)
	delete(m, "usage")
	for _, c := range m["choices"].([]any) {
		choice := c.(map[string]any)
		delete(choice, "token_ids")
		delete(choice, "prompt_token_ids")
		if v, ok := choice["matched_stop"]; ok {
			delete(choice, "matched_stop")
			choice["stop_reason"] = v
		}
	}
	return m
}
