package router

import (
	"encoding/json"

	"github.com/narwhal-fleet/narwhal/runtime/engine/simulated"
)

// matrixRow is one row of the failure matrix. p0 and d0 are always placed first; p1 and d1
// are well and stand by for a retry.
type matrixRow struct {
	event string // in the contract's words
	how   string // what is provoked, for the page
	form  string // "stream", "buffer"; "" = both

	each    func(i int, c *simulated.Config)
	tune    tweak
	warm    bool // an earlier request has introduced the pair
	inject  []shot
	legs    func(b *testbed)                                // runs between the two legs
	tamper  func(earlier map[string]json.RawMessage) tamper // changes what p0's first leg returned
	during  func(b *testbed, leave func())                  // runs beside the request
	request map[string]any
	long    bool // an answer that lasts until something happens

	sees       string // by the client
	retryAfter string
	terminal   string // of the row, with its reason or cancelled_phase
	failures   string // of the row's attempts: phase, reason, engine, why it was or was not repeated
	strikes    string // engine and class that the breakers count
	may        string // engines that may be probed, held or ejected besides
	pinned     string // engine whose blocks stay pinned until the lease ends
	alarm      string // engine and alarm
	unseen     bool   // no router can know of the pinned blocks
	blind      bool   // no router can know: the text may be wrong
}

type shot struct {
	at string
	simulated.Injection
}

type tamper func(h map[string]json.RawMessage)

func in(at, kind string) shot { return shot{at, simulated.Injection{Kind: kind}} }

func status(at, kind string, code int) shot {
	return shot{at, simulated.Injection{Kind: kind, Status: code}}
}

func after(at, kind string, tokens int) shot {
	return shot{at, simulated.Injection{Kind: kind, After: tokens}}
}

func corrupt(field, value string) []shot {
	return []shot{{"p0", simulated.Injection{Kind: "corrupt-handoff", Field: field, Value: []byte(value)}}}
}

func slow(at string, factor float64) shot {
	return shot{at, simulated.Injection{Kind: "slow", Factor: factor}}
}

const (
	matrixBadRequest = "400 invalid_request_error -"
	midStream        = "event decode failed"
	notUsed          = "prefill invalid_response p0 allowed"
	decodeAgain      = "decode engine_error d0 allowed"
)

// matrix is the failure matrix of the engine dialect, and what of its other chapters a
// router must survive.
var matrix = []matrixRow{
	{event: "leg 1 4xx", how: "p0 answers leg 1 with 400", inject: []shot{status("p0", "leg1-status", 400)},
		sees: matrixBadRequest, terminal: "invalid", failures: "prefill - p0 non_transient"},
	{event: "leg 1 4xx", how: "p0 answers leg 1 with 404", inject: []shot{status("p0", "leg1-status", 404)},
		sees: "404 invalid_request_error -", terminal: "invalid", failures: "prefill - p0 non_transient"},
	{event: "leg 1 4xx", how: "p0 refuses the router itself with 401", inject: []shot{status("p0", "leg1-status", 401)},
		sees: "502 prefill prefill", terminal: "failed engine_rejected", failures: "prefill engine_rejected p0 non_transient"},
	{event: "leg 1 aborted", how: "the client leaves while p0 prefills", inject: []shot{slow("p0", 5000)},
		during: func(b *testbed, leave func()) { b.until("p0", running); leave() }, terminal: "cancelled prefill"},
	{event: "leg 1 200 without a handoff", how: "p0 answers without one", inject: []shot{in("p0", "drop-handoff")},
		sees: "200", terminal: "completed", failures: notUsed, strikes: "p0 kv_handoff", pinned: "p0"},
	{event: "leg 2 400/404 from D's serving layer", how: "d0 answers leg 2 with 400", inject: []shot{status("d0", "leg2-status", 400)},
		sees: matrixBadRequest, terminal: "invalid", failures: "decode - d0 non_transient"},
	{event: "leg 2 400/404 from D's serving layer", how: "d0 answers leg 2 with 404", inject: []shot{status("d0", "leg2-status", 404)},
		sees: "404 invalid_request_error -", terminal: "invalid", failures: "decode - d0 non_transient"},
	{event: "leg 2 400 from the schema", how: "logprobs is a word, which only leg 2 carries", request: map[string]any{"logprobs": "many"},
		sees: matrixBadRequest, terminal: "invalid", failures: "decode - d0 non_transient", pinned: "p0"},
	{event: "leg 2 aborted while waiting or decoding", how: "the client leaves while d0 is paused", inject: []shot{in("d0", "pause")},
		during: func(b *testbed, leave func()) { b.until("d0", held); leave() }, terminal: "cancelled decode"},
	{event: "leg 2 aborted while waiting or decoding", how: "the client leaves while d0 decodes", long: true, inject: []shot{slow("d0", 30)},
		during: func(b *testbed, leave func()) { b.flowing("d0"); leave() }, terminal: "cancelled decode"},
	{event: "leg 2 never sent", how: "p0's handoff is refused", inject: corrupt("tp_size", ""),
		sees: "200", terminal: "completed", failures: notUsed, strikes: "p0 kv_handoff", pinned: "p0"},
	{event: "unknown engine id or unreachable side channel", how: "p0 hands off in the name of another process", warm: true, inject: corrupt("remote_engine_id", `"0b0c"`),
		sees: "200", terminal: "completed", failures: notUsed, strikes: "p0 kv_handoff", pinned: "p0"},
	{event: "unknown engine id or unreachable side channel", how: "the same in p0's first handoff", inject: corrupt("remote_engine_id", `"0b0c"`),
		sees: "200", terminal: "completed", failures: decodeAgain, strikes: "d0 stream", pinned: "p0"},
	{event: "unknown engine id or unreachable side channel", how: "p0's side channel gives no handshake", inject: []shot{in("p0", "side-dead")}, each: shortHandshake,
		sees: "200", terminal: "completed", failures: decodeAgain, strikes: "d0 stream", pinned: "p0"},
	{event: "handoff used twice", how: "p0 returns the handoff of an earlier prompt of equal length", warm: true, tamper: sendAgain, tune: watchful,
		sees: "200", terminal: "completed", failures: notUsed, strikes: "p0 kv_handoff", pinned: "p0"},
	{event: "handoff after expiry", how: "p0's leases end between the legs", legs: betweenLegs("p0", "expire"), tune: watchful,
		sees: "200", terminal: "completed", alarm: "p0 notification_after_expiry"},
	{event: "handoff after expiry", how: "and its blocks are overwritten", legs: betweenLegs("p0", "recycle"), tune: watchful,
		sees: "200", terminal: "completed", alarm: "p0 notification_after_expiry", blind: true},
	{event: "handoff without `remote_host` etc.", how: "p0's handoff has no remote_host", inject: corrupt("remote_host", ""),
		sees: "200", terminal: "completed", failures: notUsed, strikes: "p0 kv_handoff", pinned: "p0"},
	{event: "block list empty, flat or shorter than D's prompt needs", how: "an empty list", inject: corrupt("remote_block_ids", `[[]]`),
		sees: "200", terminal: "completed", failures: notUsed, strikes: "p0 kv_handoff", pinned: "p0"},
	{event: "block list empty, flat or shorter than D's prompt needs", how: "a flat list", inject: corrupt("remote_block_ids", `[1,2,3,4,5,6,7]`),
		sees: "200", terminal: "completed", failures: notUsed, strikes: "p0 kv_handoff", pinned: "p0"},
	{event: "block list empty, flat or shorter than D's prompt needs", how: "one block", inject: corrupt("remote_block_ids", `[[1]]`),
		sees: "200", terminal: "completed", failures: notUsed, strikes: "p0 kv_handoff", pinned: "p0"},
	{event: "other prompt of equal length", how: "d0 reads other tokens than p0 sent", inject: []shot{in("d0", "wrong-block")},
		sees: "200", terminal: "completed", blind: true},
	{event: "wrong `remote_request_id`", how: "p0's handoff names an unknown request", inject: corrupt("remote_request_id", `"cmpl-x-0-1"`), tune: watchful,
		sees: "200", terminal: "completed", failures: notUsed, strikes: "p0 kv_handoff", pinned: "p0"},
}

func running(a simulated.Account) bool { return a.Running > 0 }
func held(a simulated.Account) bool    { return a.Held > 0 }
