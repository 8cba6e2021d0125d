package main

import (
	"fmt"
	"strings"

	"github.com/narwhal-fleet/narwhal/internal/docgen"
	"github.com/narwhal-fleet/narwhal/runtime/router"
)

// routerPages are the pages that come from the router's tables.
func routerPages() []docgen.Page {
	return []docgen.Page{routesPage(), errorsPage(), journalPage(), configPage()}
}

func code(s string) string {
	if s == "" || s == router.Absent {
		return s
	}
	return "`" + s + "`"
}

func words[T any](list []T) string {
	var out []string
	for _, x := range list {
		out = append(out, fmt.Sprint(x))
	}
	return strings.Join(out, ", ")
}

func routesPage() docgen.Page {
	gates := map[router.Gate]string{router.GateOpen: "everybody", router.GateKey: "API key", router.GateControl: "control"}
	s := docgen.Section{Head: []string{"Method", "Path", "Answer", "Statuses", "Who gets in"},
		After: "*API key*: where `--tenants` names a file, a client must send a key of it, as `Authorization: Bearer KEY` or `X-API-Key: KEY`; without the file everybody gets in. *Control*: the token of `--control-token`, or the key of a tenant with `admin`, in the same headers; where there is neither, everybody gets in, and only the network guards."}
	for _, r := range router.Routes() {
		path := code(r.Path)
		if r.Ours {
			path += " *"
		}
		s.Rows = append(s.Rows, []string{r.Method, path, r.Answers, words(r.Statuses), gates[r.Access]})
	}
	all := docgen.Section{Title: "Every path", Head: []string{"Status", "When"}}
	for _, e := range router.Everywhere {
		all.Rows = append(all.Rows, []string{fmt.Sprint(e.Status), e.Condition})
	}
	headers := docgen.Section{Title: "Headers", Before: `Every answer to a completion, errors included, has ` + "`X-Request-Id`" + `: the router's own id of the request, under which the
journal has its row. A client's ` + "`X-Request-Id`" + ` goes into the row as ` + "`client_rid`" + ` and nowhere else. A ` + "`traceparent`" + ` is taken
up where traces are on. A stream is ` + "`text/event-stream`" + `; everything else but metrics is JSON with a length. Keys and tokens of
clients never reach an engine.`}
	return docgen.Sections("routes.md", "Routes", "What the router answers. Failures of the client routes have [a page of their own](errors.md).\nRoutes with a star are not in the reference.", s, all, headers)
}

func errorsPage() docgen.Page {
	before := docgen.Section{Title: "Before the first byte", Head: []string{"HTTP", "`type`", "`code`", "`param`", "`message`", "`Retry-After`", "When", "Journal"},
		Before: "A real HTTP status, with `{\"error\":{\"message\":…,\"type\":…}}`, and `param` and `code` where the table has them; — is an absent member,\n`null` a present one. … stands for what varies. `admission`, `prefill` and `decode` are the phase in which a leg failed; only\n`/tokenize` says `admission`. The last column is terminal and reason of the journal row."}
	for _, e := range router.Errors() {
		status := fmt.Sprint(e.Status)
		if e.Status == 0 {
			status = router.Absent
		}
		typ, c := code(e.Type), code(e.Code)
		if e.Type == router.AnyPhase {
			typ, c = "`admission`, `prefill`, `decode`", "as `type`"
		}
		param := e.Param
		if param == "null" {
			param = code(param)
		}
		retry := e.RetryAfter
		if retry == "" {
			retry = router.Absent
		}
		row := "no row"
		if e.Terminal != "" {
			row = code(e.Terminal)
			if len(e.Reasons) > 0 {
				row += ": " + words(e.Reasons)
			}
		}
		before.Rows = append(before.Rows, []string{status, typ, c, param, e.Message, retry, e.Condition, row})
	}
	after := docgen.Section{Title: "After the first byte", Head: []string{"`type`", "`code`", "When", "Terminal of the row"},
		Before: "The status is already 200. One event ends the stream, without `[DONE]` behind it:\n\n```text\ndata: {\"error\":{\"message\":\"Upstream request failed\",\"type\":\"decode\",\"code\":\"failed\"}}\n```\n\nA client that does not read gets one more second for it. The journal row has `status` 200."}
	for _, e := range router.LateErrors() {
		var ends []string
		for _, x := range e.Terminals {
			ends = append(ends, code(x))
		}
		after.Rows = append(after.Rows, []string{code(e.Type), code(e.Code), e.Condition, strings.Join(ends, ", ")})
	}
	notes := docgen.Section{Title: "Not told to clients", Before: "Addresses of engines, their process details and the words of the network's errors stay in the journal (`error`,\n`attempt_failures`). An engine's own message reaches the client only when the engine blames the request, and without addresses."}
	return docgen.Sections("errors.md", "Errors", "How a request for a completion, or for `/tokenize`, can fail. `/tokenize` writes no journal row. Other routes answer as [their page](routes.md) says.", before, after, notes)
}
