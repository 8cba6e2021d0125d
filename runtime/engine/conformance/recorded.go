package conformance

import (
	"bufio"
	"bytes"
	"cmp"
	"embed"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/narwhal-fleet/narwhal/runtime/engine"
)

//go:embed testdata/*/*.http testdata/errors/*/*.http
var recordings embed.FS

// exchange is one recorded request and its answer.
type exchange struct {
	name        string
	method, uri string
	header      http.Header
	body        []byte
	status      int
	answer      []byte
	streamed    bool
}

// recorded replays the recordings: refusals must agree in status and type, answers in shape.
func (s *suite) recorded(t *testing.T) {
	c := s.Single(t)
	for _, x := range load(t) {
		t.Run(x.name, func(t *testing.T) { s.replay(t, c, x) })
	}
}

func load(t *testing.T) (out []exchange) {
	t.Helper()
	err := fs.WalkDir(recordings, "testdata", func(p string, d fs.DirEntry, err error) error {
		if err != nil || path.Base(p) != "request.http" {
			return err
		}
		x, err := read(path.Dir(p))
		out = append(out, x)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(out, func(a, b exchange) int { return cmp.Compare(a.name, b.name) })
	if len(out) < 60 {
		t.Fatalf("only %d recordings", len(out))
	}
	return out
}

func read(dir string) (exchange, error) {
	x := exchange{name: strings.TrimPrefix(dir, "testdata/")}
	raw, err := recordings.ReadFile(dir + "/request.http")
	if err != nil {
		return x, err
	}
	req, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(raw)))
	if err != nil {
		return x, fmt.Errorf("%s: %w", dir, err)
	}
	x.method, x.uri, x.header = req.Method, req.RequestURI, req.Header
	if x.body, err = io.ReadAll(req.Body); err != nil {
		return x, fmt.Errorf("%s: %w", dir, err)
	}
	if raw, err = recordings.ReadFile(dir + "/response.http"); err != nil {
		return x, err
	}
	resp, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(raw)), req)
	if err != nil {
		return x, fmt.Errorf("%s: %w", dir, err)
	}
	x.status = resp.StatusCode
	x.streamed = strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream")
	x.answer, err = io.ReadAll(resp.Body)
	return x, err
}

// replay repeats an exchange. An engine may join tokens of a stream in one event, by chance: then it is
// asked again.
func (s *suite) replay(t *testing.T, c *engine.Client, x exchange) {
	for try := 1; ; try++ {
		got := s.exchange(t, c, x)
		if x.streamed && try < 5 && len(events(got)) < len(events(x.answer)) {
			continue
		}
		s.judge(t, x, got)
		return
	}
}

// exchange returns the body of an answer that has the recorded status.
func (s *suite) exchange(t *testing.T, c *engine.Client, x exchange) []byte {
	req, err := http.NewRequestWithContext(s.limit(t), x.method, c.Base()+x.uri, strings.NewReader(s.named(string(x.body))))
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range []string{"Content-Type", "X-Request-Id"} {
		if v := x.header.Get(k); v != "" {
			req.Header.Set(k, v)
		}
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != x.status {
		t.Fatalf("status %d, recorded %d: %s", resp.StatusCode, x.status, got)
	}
	return got
}

func (s *suite) judge(t *testing.T, x exchange, got []byte) {
	switch {
	case x.streamed:
		sameEvents(t, x.answer, got)
	case len(x.answer) == 0:
		if len(got) != 0 && x.method != http.MethodHead {
			t.Fatalf("body %s, recorded none", got)
		}
	default:
		sameBody(t, x.status, x.answer, got)
	}
}

func sameBody(t *testing.T, status int, want, got []byte) {
	t.Helper()
	if d := shape("", decoded(t, want), decoded(t, got)); d != "" {
		t.Fatalf("%s\nrecorded %s\ngot      %s", d, want, got)
	}
	if status < 400 {
		return
	}
	w, g := engine.ParseStatusError(status, want), engine.ParseStatusError(status, got)
	if w.Type != g.Type || w.Code != g.Code {
		t.Fatalf("got %s %d, recorded %s %d", g.Type, g.Code, w.Type, w.Code)
	}
}

func sameEvents(t *testing.T, want, got []byte) {
	t.Helper()
	w, g := byChoice(events(want)), byChoice(events(got))
	if len(w) != len(g) {
		t.Fatalf("%d events, recorded %d:\n%s", len(g), len(w), got)
	}
	for i := range w {
		if string(w[i]) == "[DONE]" || string(g[i]) == "[DONE]" {
			if string(w[i]) != string(g[i]) {
				t.Fatalf("event %d: got %s, recorded %s", i, g[i], w[i])
			}
			continue
		}
		if d := shape("", decoded(t, w[i]), decoded(t, g[i])); d != "" {
			t.Fatalf("event %d: %s\nrecorded %s\ngot      %s", i, d, w[i], g[i])
		}
	}
}

// byChoice puts the events of each choice together: how choices interleave is chance.
func byChoice(list [][]byte) [][]byte {
	rank := func(e []byte) int {
		var w struct{ Choices []struct{ Index int } }
		if json.Unmarshal(e, &w) != nil || len(w.Choices) == 0 {
			return 1 << 20
		}
		return w.Choices[0].Index
	}
	slices.SortStableFunc(list, func(a, b []byte) int { return cmp.Compare(rank(a), rank(b)) })
	return list
}

func decoded(t *testing.T, b []byte) any {
	t.Helper()
	var v any
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatalf("%s: %v", b, err)
	}
	return v
}

// shape says where got differs from want in members or kinds. Null stands for any kind, and
// of lists the first elements are compared, where both have one.
func shape(at string, want, got any) string {
	if want == nil || got == nil {
		return ""
	}
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			return fmt.Sprintf("%s is %T, want an object", at, got)
		}
		for k, v := range w {
			x, ok := g[k]
			if !ok {
				return at + "." + k + " is missing"
			}
			if d := shape(at+"."+k, v, x); d != "" {
				return d
			}
		}
		for k := range g {
			if _, ok := w[k]; !ok {
				return at + "." + k + " is not in the recording"
			}
		}
	case []any:
		g, ok := got.([]any)
		if !ok {
			return fmt.Sprintf("%s is %T, want a list", at, got)
		}
		if len(w) > 0 && len(g) > 0 {
			return shape(at+"[0]", w[0], g[0])
		}
	default:
		if fmt.Sprintf("%T", want) != fmt.Sprintf("%T", got) {
			return fmt.Sprintf("%s is %T, want %T", at, got, want)
		}
	}
	return ""
}
