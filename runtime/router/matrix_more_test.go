package router

import (
	"encoding/json"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/runtime/engine/simulated"
)

func init() { matrix = append(append(matrix, matrixDeaths...), matrixLife...) }

var matrixDeaths = []matrixRow{
	{event: "P frozen", how: "p0 freezes between the legs", legs: betweenLegs("p0", "freeze"), tune: askedBriefly,
		sees: "200", terminal: "completed", failures: "decode engine_timeout d0 allowed", strikes: "p0 connection", may: "p0"},
	{event: "P killed", how: "p0 is killed between the legs", legs: func(b *testbed) { b.engine("p0").Kill() }, warm: true,
		sees: "200", terminal: "completed", failures: decodeAgain, strikes: "p0 connection", may: "p0"},
	{event: "P killed", how: "p0 is killed while it prefills", inject: []shot{slow("p0", 5000)},
		during: func(b *testbed, _ func()) { b.until("p0", running); b.engine("p0").Kill() },
		sees:   "200", terminal: "completed", failures: "prefill engine_connection p0 allowed", strikes: "p0 timeout", may: "p0"},
	{event: "P out of blocks", how: "p0's few blocks are pinned by a handoff that nobody reads", each: fewBlocks, warm: true, inject: []shot{in("d0", "notice-lost")},
		tune: spent, sees: "200", terminal: "completed"},
	{event: "policy `recompute`", how: "d0 reads in vain and prefills by itself", each: recomputes, inject: []shot{in("d0", "read-failure")}, tune: watchful,
		sees: "200", terminal: "completed", alarm: "d0 local_recompute", pinned: "p0", unseen: true},
	{event: "queue limit", how: "p0 is busy", inject: []shot{in("p0", "busy")},
		sees: "200", terminal: "completed", failures: "prefill engine_overloaded p0 allowed"},
	{event: "queue limit", how: "d0 is busy", inject: []shot{in("d0", "busy")},
		sees: "200", terminal: "completed", failures: "decode engine_overloaded d0 allowed", pinned: "p0"},
	{event: "queue limit", how: "every prefilling engine is busy", inject: []shot{in("p0", "busy"), in("p1", "busy")}, retryAfter: "1",
		sees: "429 server_overloaded_error -", terminal: "failed engine_overloaded", failures: "prefill engine_overloaded p0 allowed, prefill engine_overloaded p1 attempt_limit"},
	{event: "D's core dies", how: "d0's core dies between the legs", legs: betweenLegs("d0", "core-death"),
		sees: "200", terminal: "completed", failures: decodeAgain, strikes: "d0 inference_status", pinned: "p0"},
	{event: "D's core dies", how: "d0's core dies while it streams", form: "stream", long: true, inject: []shot{slow("d0", 30)},
		during: func(b *testbed, _ func()) { b.flowing("d0"); b.inject("d0", simulated.Injection{Kind: "core-death"}) },
		sees:   midStream, terminal: "failed engine_error", failures: "decode engine_error d0 output_started", strikes: "d0 stream"},
	{event: "side channel thread dead", how: "p0's side channel dies after the pair has met", warm: true, inject: []shot{in("p0", "side-dead")},
		sees: "200", terminal: "completed"},
}

// askedBriefly waits three seconds for tokens, and one for an engine's word on itself.
func askedBriefly(c *Config) {
	patience(3)(c)
	c.Fleet.Engine.HealthTimeoutS = 1
}

var matrixLife = []matrixRow{
	{event: "lifecycle: SIGTERM, default", how: "d0 stops by the default while it streams", form: "stream", long: true, inject: []shot{slow("d0", 30)}, tune: patience(3),
		during: func(b *testbed, _ func()) { b.flowing("d0"); b.inject("d0", simulated.Injection{Kind: "terminate"}) },
		sees:   midStream, terminal: "failed engine_timeout", failures: "decode engine_timeout d0 output_started", strikes: "d0 stream"},
	{event: "lifecycle: SIGTERM, a limit", how: "d0 finishes what runs and refuses what is new", legs: drains,
		sees: "200", terminal: "completed", failures: decodeAgain, strikes: "d0 inference_status", pinned: "p0"},
	{event: "lifecycle: SIGTERM, a limit", how: "d0 had nothing to finish and is gone", legs: betweenLegs("d0", "terminate"),
		sees: "200", terminal: "completed", failures: "decode engine_unreachable d0 allowed", strikes: "d0 connection", may: "d0", pinned: "p0"},
	{event: "lifecycle: paused", how: "d0 is paused", inject: []shot{in("d0", "pause")}, tune: patience(3),
		sees: "200", terminal: "completed", failures: "decode engine_timeout d0 allowed", strikes: "d0 stream"},
	{event: "lifecycle: paused", how: "p0 is paused", inject: []shot{in("p0", "pause")}, tune: askedBriefly,
		sees: "200", terminal: "completed", failures: "prefill engine_timeout p0 allowed", may: "p0"},
	{event: "answers: none", how: "p0 accepts and never answers", inject: []shot{in("p0", "hang")}, tune: func(c *Config) { c.Fleet.Serving.PrefillTimeoutS = 3 },
		sees: "200", terminal: "completed", failures: "prefill engine_timeout p0 allowed", strikes: "p0 timeout"},
	{event: "answers: none", how: "d0 accepts and never answers", inject: []shot{in("d0", "hang")}, tune: patience(3),
		sees: "200", terminal: "completed", failures: "decode engine_timeout d0 allowed", strikes: "d0 stream", pinned: "p0"},
	{event: "answers: garbage", how: "p0 answers leg 1 with 200 and garbage", inject: []shot{in("p0", "garbage")},
		sees: "200", terminal: "completed", failures: notUsed, strikes: "p0 kv_handoff"},
	{event: "answers: garbage", how: "d0 answers leg 2 with 200 and garbage", inject: []shot{in("d0", "garbage")},
		sees: "200", terminal: "completed", failures: decodeAgain, strikes: "d0 stream", pinned: "p0"},
	{event: "answers: pieces", how: "both answer byte by byte", inject: []shot{in("p0", "trickle"), in("d0", "trickle")},
		sees: "200", terminal: "completed"},
	{event: "answers: refused", how: "p0's port is closed", inject: []shot{in("p0", "refuse")},
		sees: "200", terminal: "completed", failures: "prefill engine_unreachable p0 allowed", strikes: "p0 connection", may: "p0"},
	{event: "answers: 500", how: "p0 answers leg 1 with 500", inject: []shot{status("p0", "leg1-status", 500)},
		sees: "200", terminal: "completed", failures: "prefill engine_error p0 allowed", strikes: "p0 inference_status"},
	{event: "answers: 429", how: "p0 answers leg 1 with 429", inject: []shot{status("p0", "leg1-status", 429)},
		sees: "200", terminal: "completed", failures: "prefill engine_overloaded p0 allowed", strikes: "p0 overload"},
	{event: "answers: 307", how: "p0 answers leg 1 with a redirection", inject: []shot{status("p0", "leg1-status", 307)},
		sees: "200", terminal: "completed", failures: "prefill engine_error p0 allowed", strikes: "p0 inference_status"},
	{event: "answers: 307", how: "d0 answers leg 2 with a redirection", inject: []shot{status("d0", "leg2-status", 307)},
		sees: "200", terminal: "completed", failures: decodeAgain, strikes: "d0 inference_status", pinned: "p0"},
	{event: "answers: 405", how: "p0 answers leg 1 with 405", inject: []shot{status("p0", "leg1-status", 405)},
		sees: "200", terminal: "completed", failures: "prefill engine_error p0 allowed", strikes: "p0 inference_status"},
	{event: "answers: 451", how: "d0 answers leg 2 with 451", inject: []shot{status("d0", "leg2-status", 451)},
		sees: "200", terminal: "completed", failures: decodeAgain, strikes: "d0 inference_status"},
	{event: "transfer: the read fails", how: "d0 cannot read p0's blocks", inject: []shot{in("d0", "read-failure")},
		sees: "200", terminal: "completed", failures: decodeAgain, strikes: "d0 stream", pinned: "p0"},
	{event: "transfer: the notice is lost", how: "p0 is not told that d0 has read", inject: []shot{in("d0", "notice-lost")},
		sees: "200", terminal: "completed", pinned: "p0", unseen: true},
	{event: "stream: error event", how: "before the first token", inject: []shot{after("d0", "error", 0)},
		sees: "200", terminal: "completed", failures: decodeAgain, strikes: "d0 stream"},
	{event: "stream: error event", how: "after 3 tokens", form: "stream", inject: []shot{after("d0", "error", 3)},
		sees: midStream, terminal: "failed engine_error", failures: "decode engine_error d0 output_started", strikes: "d0 stream"},
	{event: "stream: error event", how: "after 3 tokens of a buffered answer", form: "buffer", inject: []shot{after("d0", "error", 3)},
		sees: "200", terminal: "completed", failures: decodeAgain, strikes: "d0 stream"},
	{event: "stream: end of file", how: "after 3 tokens", form: "stream", inject: []shot{after("d0", "eof", 3)},
		sees: midStream, terminal: "failed engine_error", failures: "decode engine_error d0 output_started", strikes: "d0 stream"},
	{event: "stream: connection reset", how: "after 3 tokens", form: "stream", inject: []shot{after("d0", "reset", 3)},
		sees: midStream, terminal: "failed engine_connection", failures: "decode engine_connection d0 output_started", strikes: "d0 timeout", may: "d0"},
	{event: "stream: silence", how: "after 3 tokens", form: "stream", inject: []shot{after("d0", "stall", 3)}, tune: patience(3),
		sees: midStream, terminal: "failed engine_timeout", failures: "decode engine_timeout d0 output_started", strikes: "d0 stream"},
}

// at plays one injection.
func betweenLegs(iid, kind string) func(*testbed) {
	return func(b *testbed) { b.inject(iid, simulated.Injection{Kind: kind}) }
}

// drains gives d0 something to finish and tells it to stop.
func drains(b *testbed) {
	q := matrixRow{}.ask(false)
	q["max_tokens"] = 500
	go watch(b.t.Context(), b.client(), b.engine("d0").URL(), q, "", nil)
	b.until("d0", running)
	b.inject("d0", simulated.Injection{Kind: "terminate", ForS: 5})
}

// sendAgain gives an earlier handoff out again.
func sendAgain(earlier map[string]json.RawMessage) tamper {
	return func(h map[string]json.RawMessage) {
		for k, v := range earlier {
			h[k] = v
		}
	}
}

// watchful reads the engines' counters often, so that alarms are seen.
func watchful(c *Config) { c.Fleet.Recovery.LivenessEvery = 1 }

// spent has no room for another attempt: the request itself must succeed.
func spent(c *Config) { c.Fleet.Serving.MaxAttempts = 1 }

func shortHandshake(_ int, c *simulated.Config) {
	c.HandshakeLimit = fleet.Duration(300 * time.Millisecond)
}

func recomputes(_ int, c *simulated.Config) { c.Recompute = true }

// fewBlocks holds one prompt and no second.
func fewBlocks(_ int, c *simulated.Config) {
	c.Blocks, c.LeaseS, c.MaxModelLen = 16, 1, 200
}
