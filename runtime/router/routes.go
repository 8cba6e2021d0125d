package router

import (
	"net/http"
)

// Route is one method of one path. The list of them makes the router's mux and the page
// docs/routes.md.
type Route struct {
	Method, Path string
	Answers      string
	// Statuses that the route can answer, beside those that every path can.
	Statuses []int
	// Access says who gets in: a client with an API key where there is a file of tenants, who
	// controls the fleet, or everybody.
	Access Gate
	// Ours is false for the routes of the reference.
	Ours bool

	handler func(*Router) http.HandlerFunc
}

// Gate is what a route asks of a client.
type Gate string

// Gates of the routes.
const (
	GateOpen    Gate = "open"
	GateKey     Gate = "key"
	GateControl Gate = "control"
)

// completionStatuses are those of errors_table.go, and 200.
var completionStatuses = []int{200, 400, 401, 404, 408, 413, 415, 422, 429, 500, 502, 503, 504}

// Routes lists every route in the order of the page.
func Routes() []Route {
	get, post := http.MethodGet, http.MethodPost
	probe := []int{200, 503}
	order := []int{200, 401, 403, 409, 422, 503}
	return []Route{
		{post, "/v1/completions", "A completion: JSON, or a stream of server-sent events with `stream: true`.", completionStatuses, GateKey, false,
			func(r *Router) http.HandlerFunc { return r.completions(false) }},
		{post, "/v1/chat/completions", "A chat completion, in both forms.", completionStatuses, GateKey, false,
			func(r *Router) http.HandlerFunc { return r.completions(true) }},
		{get, "/v1/models", "A list with the one model of the fleet.", []int{200}, GateOpen, false, func(r *Router) http.HandlerFunc { return r.models }},
		{post, "/tokenize", "What the least busy engine answers to the same call, byte for byte. Without `model` the fleet's model is put in.",
			[]int{200, 400, 401, 404, 408, 413, 415, 422, 429, 502, 503, 504}, GateKey, true, func(r *Router) http.HandlerFunc { return r.tokenize }},
		{get, "/health", "`status`, `instances`, `available_instances`. 503 only when the router does not answer itself (`stuck`); use it for liveness.",
			probe, GateOpen, false, func(r *Router) http.HandlerFunc { return r.healthDoc }},
		{get, "/ready", "`status`, `control_ready`, `epoch`, `holder`, `reason`. 200 while requests are admitted, else 503 with the reason and `Retry-After: 1`; use it for load balancers.",
			probe, GateOpen, false, func(r *Router) http.HandlerFunc { return r.readyDoc }},
		{get, "/metrics", "Prometheus text, OpenMetrics or protobuf, as the scraper asks: [all metrics](metrics.md).", []int{200}, GateOpen, false,
			func(r *Router) http.HandlerFunc { return r.metrics.serve }},
		{http.MethodHead, "/metrics", "The head of that answer.", []int{200}, GateOpen, true, func(r *Router) http.HandlerFunc { return r.metrics.serve }},
		{get, "/narwhal/state", "`narwhal.state` version 1: engines, roles, counters, the last decision, the condition of router and journal.", probe, GateOpen, false,
			func(r *Router) http.HandlerFunc { return r.stateDoc }},
		{get, "/narwhal/handoff", "`narwhal.handoff` version 1: what another router needs to go on. A standby polls it, and answers with what it follows itself, its age in seconds in `Narwhal-Handoff-Age`; it says in `Narwhal-Handoff-Kept` which document it has.", probe, GateOpen, false,
			func(r *Router) http.HandlerFunc { return r.handoffDoc }},
		{get, "/narwhal/targets", "The engines as Prometheus HTTP service discovery.", []int{200}, GateOpen, false, func(r *Router) http.HandlerFunc { return r.targets }},
		{get, "/narwhal/lifecycle", "`narwhal.lifecycle` version 1: the lifecycle of each engine, a hold of the whole fleet, the last events.", []int{200}, GateOpen, false,
			func(r *Router) http.HandlerFunc { return r.getLifecycle }},
		{post, "/narwhal/lifecycle/drain", "Takes one engine out (`{\"engines\":[\"IID\"],\"deadline_s\":300}`), or holds the whole fleet (`{\"wave\":true}`). 409 says in `error` why not, 503 that this router does not control the fleet or that a contracted engine does not tell its process; 422 is a body of other types. With 200, `Narwhal-Order-Stored: true` says that the state file has the order, `Narwhal-Order-Replicated: true` that there is a standby that polls and each such has it.",
			order, GateControl, false, func(r *Router) http.HandlerFunc { return r.guarded(r.drain) }},
		{post, "/narwhal/lifecycle/readmit", "Takes a drained engine back after asking who it is, with an engine contract after validating its new process (`{\"engines\":[\"IID\"]}`), or ends the hold (`{\"wave\":true}`). The same headers.", order, GateControl, false,
			func(r *Router) http.HandlerFunc { return r.guarded(r.readmitCall) }},
		{post, "/narwhal/lifecycle/activate", "Takes the profiles of engines (`{\"engines\":[\"IID\"],\"sha256\":\"DIGEST\"}`, `{\"wave\":true}` for all) from the store at `profiles.path` as it is now, while requests go on; `sha256`, where it is given, is the digest that the file must have. 409 says why not: an engine that serves takes no profile of another generation, so drain it first. 503: the file cannot be read. A standby takes them too.", order, GateControl, true,
			func(r *Router) http.HandlerFunc { return r.guarded(r.activate) }},
	}
}

// table is the mux: by path, then by method.
func (r *Router) table() map[string]map[string]http.HandlerFunc {
	out := map[string]map[string]http.HandlerFunc{}
	for _, x := range Routes() {
		if out[x.Path] == nil {
			out[x.Path] = map[string]http.HandlerFunc{}
		}
		out[x.Path][x.Method] = x.handler(r)
	}
	return out
}

// Everywhere lists what every path can answer before its route is looked up.
var Everywhere = []struct {
	Status    int
	Condition string
}{
	{http.StatusNotFound, "No such path: `{\"detail\":\"Not Found\"}`."},
	{http.StatusMethodNotAllowed, "The path has no such method, HEAD included: `{\"detail\":\"Method Not Allowed\"}` with `Allow`."},
	{http.StatusRequestTimeout, "The head did not arrive within `--header-timeout` of its first byte; type `request_timeout`, and the connection is closed."},
	{http.StatusMisdirectedRequest, "The router listens on loopback and the `Host` header names somebody else; code `foreign_host`."},
	{http.StatusExpectationFailed, "`Expect` asks for something else than `100-continue`; no body."},
	{http.StatusNotImplemented, "`Transfer-Encoding` is something else than `chunked`; plain text, and the connection is closed."},
	{http.StatusHTTPVersionNotSupported, "The request is of another version than HTTP/1; plain text, and the connection is closed."},
	{http.StatusRequestHeaderFieldsTooLarge, "The head of the request is larger than `--max-header-bytes`."},
	{http.StatusServiceUnavailable, "Clients have all their connections, and all are in a request. A few more are kept for `/health`, `/ready`, `/metrics` and `/narwhal/*`, and anything else on one of those is refused: code `connections`, `Retry-After: 1`, and the connection is closed."},
	{http.StatusBadRequest, "The head is no HTTP; plain text, and the connection is closed."},
}
