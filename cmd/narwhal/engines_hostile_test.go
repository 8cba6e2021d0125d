package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/narwhal-fleet/narwhal/internal/problem"
	"github.com/narwhal-fleet/narwhal/runtime/lifecycle"
)

// What answers in a router's place is bounded, named, and never steers the terminal.
func TestEnginesHostileAnswers(t *testing.T) {
	evil := `p\u001b[2J\n0\u202e\ttab`
	life := func(inner string) string {
		return `{"schema":"narwhal.lifecycle","schema_version":1,"router":{"controls_fleet":true},"engines":{` + inner + `}`
	}
	nasty := life(`"` + evil + `":{"state":"act\u001b]0;x\u0007ive","error":"` + evil + strings.Repeat("y", 5000) + `"},"e":{"state":"active"}`)
	state := func(l string) string {
		return `{"schema":"narwhal.state","schema_version":1,"lifecycle":` + l + `},"pools":{"prefill":["` + evil + `"]},"ejected":["` + evil + `"],"breaker":{"ejections":[{"iid":"` + evil + `","cause":"\u001b[31mred"}]}}`
	}
	for _, c := range []struct {
		name, verb string
		status     int
		body       string
		code       int
		says       string
	}{
		{"control characters", "list", 200, state(nasty), 0, `\u001b`},
		{"control characters in hints", "drain", 200, nasty + "}", 2, `known: e, p\u001b`},
		{"a refusal with control characters", "readmit", 409, life(`"x":{"state":"active"}`) + `,"error":"no\u001b[2J\nnarwhal: error: forged"}`, 6, `no\u001b`},
		{"no JSON", "list", 200, "<html>\x1b[2J", 4, "no state document"},
		{"no JSON for an order", "drain", 200, "<html>", 4, "no lifecycle document"},
		{"other JSON", "list", 200, `{"schema":"x"}`, 4, "is no narwhal.state document"},
		{"another version", "drain", 200, `{"schema":"narwhal.lifecycle","schema_version":7}`, 4, "version 7"},
		{"numbers beyond", "list", 200, state(life(`"e":{"resident":{"prefill":1e400}}`)), 4, "no state document"},
		{"no route", "list", 404, `{"detail":"Not Found"}`, 4, "status 404: Not Found"},
		{"a redirect", "drain", 307, "", 4, "status 307"},
		{"more than may be", "list", 200, `{"schema":"` + strings.Repeat("x", 17<<20), 4, "more than 16777216 bytes"},
		{"a server's fault", "list", 500, `{"error":{"message":"broken\u001b[2J"}}`, 4, `status 500: broken\u001b`},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
				if q.Method == http.MethodGet && c.status == http.StatusConflict {
					fmt.Fprint(w, life(`"x":{"state":"active"}`)+"}")
					return
				}
				w.Header().Set("Location", "http://192.0.2.1/")
				w.WriteHeader(c.status)
				fmt.Fprint(w, c.body)
			}))
			defer s.Close()
			args := []string{c.verb, "--url", s.URL}
			if c.verb != "list" {
				args = append(args, "x")
			}
			for _, format := range []string{"text", "json"} {
				r := enginesRun(t, append(args, "--format", format)...)
				if r.code != c.code || format == "text" && !strings.Contains(r.out+r.err, c.says) {
					t.Errorf("%s: exit %d\n%.2000s%.2000s", format, r.code, r.out, r.err)
				}
				if format == "text" && c.verb == "list" && c.code == 0 && (strings.Count(r.out, "\n") != 3 || strings.Contains(r.out, strings.Repeat("y", 200))) {
					t.Errorf("not a line an engine: %q", r.out)
				}
				if strings.ContainsAny(r.out+r.err, "\x1b\x07\u202e") || len(r.out+r.err) > 20000 || strings.Contains(r.err, "\nnarwhal: error: forged") {
					t.Errorf("%s: %.2000q", format, r.out+r.err)
				}
			}
		})
	}
}

// The code of a refusal says whether an engine failed, the order did not fit, or the router may not.
func TestEnginesRefusals(t *testing.T) {
	blocked := map[string]lifecycle.Engine{"d1": {State: "blocked", Draining: true, Error: "model: another one", Checks: []string{"health"}}}
	for _, c := range []struct {
		verb     string
		status   int
		controls bool
		engines  map[string]lifecycle.Engine
		code     string
		exit     int
	}{
		{"readmit", 409, true, blocked, "validation_failed", 1},
		{"release", 409, true, blocked, "validation_failed", 1},
		{"drain", 409, true, blocked, "order_refused", 6},
		{"readmit", 409, true, nil, "order_refused", 6},
		{"drain", 503, true, blocked, "engine_blocked", 4},
		{"drain", 503, false, blocked, "not_in_control", 4},
	} {
		d := lifecycle.Document{Router: lifecycle.Router{Controls: c.controls}, Engines: c.engines}
		err := (&reached{}).problem(t.Context(), c.verb, lifecycle.Target{IID: "d1"}, d, &lifecycle.Refusal{Status: c.status, Reason: "no"})
		p := problem.All(err)[0]
		if p.Code != c.code || p.Status.Exit() != c.exit || p.Engine != "d1" || p.Hint == "" || c.engines != nil && !strings.Contains(p.Message, "model: another one") {
			t.Errorf("%s %d: %+v", c.verb, c.status, p)
		}
	}
}

func TestEnginesUnreachable(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	s.Close()
	for _, args := range [][]string{{"list"}, {"drain", "x"}, {"release", "x"}, {"readmit", "x"}} {
		if r := enginesRun(t, append(args, "--url", s.URL)...); r.code != 4 || !strings.Contains(r.err, "reach "+s.URL) || !strings.Contains(r.err, "hint: start the router with narwhal serve") {
			t.Errorf("%v: exit %d\n%s", args, r.code, r.err)
		}
	}
	for _, url := range []string{"nowhere", "ftp://x", "http://u:p@x", "http://x?y", "http://"} {
		if r := enginesRun(t, "list", "--url", url); r.code != 2 || !strings.Contains(r.err, "--url takes the address") {
			t.Errorf("%s: exit %d\n%s", url, r.code, r.err)
		}
	}
}
