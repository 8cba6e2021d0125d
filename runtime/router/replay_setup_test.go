package router

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/narwhal-fleet/narwhal/fleet"
)

// setup is what a recorded case needs beside the fleet F1 at rest.
type setup struct {
	roles  []string
	tweak  func(*fleet.Fleet)
	most   int // requests in flight; 0 = no own limit
	before func(*replayBed)
}

// replaySetups are the cases that need one. The recorded limits are seconds long; here each
// case shortens only the limit that it runs into.
var replaySetups = map[string]setup{
	"prefill_timeout_retry_then_request_deadline": {tweak: func(f *fleet.Fleet) { f.Serving.PrefillTimeoutS, f.Serving.RequestTimeoutS = 1, 1.8 }},
	"decode_first_token_deadline":                 {tweak: firstTokenSoon},
	"decode_first_token_deadline_buffered":        {tweak: firstTokenSoon},
	"late_gap":                                    {tweak: func(f *fleet.Fleet) { f.Engine.DecodeReadTimeoutS = 0.3 }},
	"late_deadline":                               {tweak: func(f *fleet.Fleet) { f.Serving.RequestTimeoutS = 2 }},
	"deadline_before_headers":                     {tweak: func(f *fleet.Fleet) { f.Serving.RequestTimeoutS = 0.3 }},
	"retry_denied_shared_budget":                  {tweak: func(f *fleet.Fleet) { f.Serving.RetryBudget = 0 }},
	"stream_after_silent_engine_retry":            {tweak: firstTokenSoon},
	"refused_queue":                               {before: busyPrefills},
	"queue_expired_admission_seat":                {tweak: queueF2, most: 2, before: twoInFlight},
	"inflight_limit":                              {tweak: queueF2, most: 2, before: fullQueue},
	"queue_expired_prefill_seat":                  {tweak: openF2, before: busyPrefills},
	"refused_slot_wait":                           {tweak: queueF2, before: busyDecodes},
	"connection_refused_everywhere":               {before: killAll},
	"no_live_engines":                             {tweak: sweepsF3, before: killedAll},
	"ready_no_live_engines":                       {tweak: sweepsF3, before: killedAll},
	"health_no_live_engines":                      {tweak: sweepsF3, before: killedAll},
	"single_engine_aggregated":                    {roles: rolesSingle},
	"two_decode_engines_aggregated":               {roles: rolesDecode},
	"pinned_decode_connection_refused":            {roles: rolesPinned, before: func(b *replayBed) { b.kill("d0") }},
	"pinned_role_gone":                            {roles: rolesPinned, tweak: sweepsF3, before: goneDecode},
	"readmit_without_contract":                    {before: drained},
}

func firstTokenSoon(f *fleet.Fleet) { f.Engine.FirstTokenTimeoutS = 0.3 }

// sweepsF3 asks engines for their health all the time.
func sweepsF3(f *fleet.Fleet) {
	f.Controller.MonitorIntervalS, f.Recovery.LivenessEvery, f.Recovery.ReadmitEvery = 0.02, 1, 1
}

func queueF2(f *fleet.Fleet) { f.Serving.QueueCapacity, f.Serving.QueueTimeoutS = 2, 1 }

func openF2(f *fleet.Fleet) {
	queueF2(f)
	f.Serving.Admission = "open"
	f.Serving.RequestTimeoutS = 1.5
}

// busyPrefills gives both prefill engines a prompt that they do not end.
func busyPrefills(b *replayBed) {
	for _, iid := range []string{"p0", "p1"} {
		prompt := strings.Repeat("1,", 10999) + "1"
		b.begin(completion(`{"prompt":[%s],"max_tokens":4,"fault":{"kind":"slow"}}`, prompt))
		b.seen("the prompt that stays on "+iid, at(iid, "-a1-prefill"))
	}
}

// busyDecodes gives both decode engines a stream that they do not end.
func busyDecodes(b *replayBed) {
	for _, iid := range []string{"d0", "d1"} {
		b.begin(completion(`{"prompt":"x","max_tokens":300,"stream":true,"fault":{"kind":"gate_decode"}}`))
		b.seen("the stream that stays on "+iid, at(iid, "-a1-decode"))
	}
}

func twoInFlight(b *replayBed) {
	for range 2 {
		b.begin(completion(`{"prompt":"x","max_tokens":4,"fault":{"kind":"slow"}}`))
	}
	eventually(b.t, "two in flight", func() bool { return b.state().Admission["inflight"] == 2.0 })
}

// fullQueue has every seat taken and every place to wait.
func fullQueue(b *replayBed) {
	twoInFlight(b)
	for range 2 {
		b.begin(completion(`{"prompt":"x","max_tokens":4}`))
	}
	eventually(b.t, "two waiting", func() bool { return b.state().Admission["queued"] == 2.0 })
}

func killAll(b *replayBed) {
	for iid := range b.engines {
		b.kill(iid)
	}
}

func killedAll(b *replayBed) {
	killAll(b)
	eventually(b.t, "every engine ejected", func() bool { return len(b.state().Ejected) == len(b.engines) })
}

func goneDecode(b *replayBed) {
	b.kill("d0")
	eventually(b.t, "d0 ejected", func() bool { return len(b.state().Ejected) == 1 })
}

func drained(b *replayBed) {
	a := b.send(replayRequest{Method: http.MethodPost, Path: "/narwhal/lifecycle/drain", Body: json.RawMessage(`{"engines":["d1"]}`)})
	if a.status != 200 {
		b.t.Fatalf("drain: %d %s", a.status, a.body)
	}
}

// startCase starts the fleet of a case and brings it into its state.
func startCase(t *testing.T, name string) *replayBed {
	t.Helper()
	s := replaySetups[name]
	if s.roles == nil {
		s.roles = rolesF1
	}
	b := startReplay(t, s.roles, false, func(c *Config) {
		if s.tweak != nil {
			s.tweak(&c.Fleet)
		}
		c.MaxConcurrent = s.most
		for i := range c.Profiles.Rows {
			if name == "refused_slot_wait" {
				c.Profiles.Rows[i].DecodeMaxRequests = 1
			}
		}
	})
	if s.before != nil {
		s.before(b)
	}
	return b
}
