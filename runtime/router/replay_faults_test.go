package router

import "net/http"

// scriptFault is the member of a client's body that chooses how engines fail.
type scriptFault struct {
	Kind   string `json:"kind"`
	IID    string `json:"iid"` // only this engine; "" = every engine
	Status int    `json:"status"`
}

// faultPlay is how a fault shows: on leg 1, on leg 2, or as the status of leg 2.
type faultPlay struct {
	prefill func(*scriptEngine, http.ResponseWriter, *http.Request, *scriptBody)
	decode  func(*scriptEngine, *scriptStream, *http.Request)
	status  int
}

// late plays the beginning of a stream that breaks.
func late(end func(*scriptStream, *http.Request)) *faultPlay {
	return &faultPlay{decode: func(_ *scriptEngine, s *scriptStream, r *http.Request) {
		s.tokens(0, 3, 1)
		end(s, r)
	}}
}

func prefillStatus(status int, kind string) *faultPlay {
	return &faultPlay{prefill: func(_ *scriptEngine, w http.ResponseWriter, _ *http.Request, _ *scriptBody) {
		refuse(w, status, kind, "refused by the script")
	}}
}

func holdPrefill(_ *scriptEngine, _ http.ResponseWriter, r *http.Request, _ *scriptBody) {
	<-r.Context().Done()
}

const scriptError = `data: {"error":{"message":"the script broke off","type":"InternalServerError","param":null,"code":500}}` + "\n\ndata: [DONE]\n\n"

// recordedFaults are those that the recordings name.
var recordedFaults = map[string]*faultPlay{
	"tool":               {decode: func(_ *scriptEngine, s *scriptStream, _ *http.Request) { s.toolCall() }},
	"prefill_400":        prefillStatus(400, "BadRequestError"),
	"prefill_429":        prefillStatus(429, "Too Many Requests"),
	"prefill_500":        prefillStatus(500, "InternalServerError"),
	"prefill_no_handoff": {prefill: func(e *scriptEngine, w http.ResponseWriter, _ *http.Request, b *scriptBody) { e.plain(w, b, "") }},
	"slow":               {prefill: holdPrefill},
	"s":                  {prefill: holdPrefill},
	"decode_500":         {status: 500},
	"decode_503":         {status: 503},
	"decode_hang_before": {decode: func(_ *scriptEngine, s *scriptStream, r *http.Request) { s.hold(r) }},
	"decode_done_first":  {decode: func(_ *scriptEngine, s *scriptStream, _ *http.Request) { s.raw("data: [DONE]\n\n") }},
	"decode_sse_error":   {decode: func(_ *scriptEngine, s *scriptStream, _ *http.Request) { s.raw(scriptError) }},
	"decode_eof":         late(func(*scriptStream, *http.Request) {}),
	"decode_hang_after":  late(func(s *scriptStream, r *http.Request) { s.hold(r) }),
	"decode_late_error":  late(func(s *scriptStream, _ *http.Request) { s.raw(scriptError) }),
	"decode_bad_ids": {decode: func(_ *scriptEngine, s *scriptStream, _ *http.Request) {
		s.b.IDs = false // engines that were asked for token ids and do not send them
		s.tokens(0, s.b.tokens(), 0)
		s.finish()
	}},
	"decode_ping": {decode: func(_ *scriptEngine, s *scriptStream, _ *http.Request) {
		s.raw(": early\n\n")
		s.tokens(0, 2, 1)
		s.raw(": ping\n\nevent: note\ndata: not json\n\n")
		s.tokens(2, 2, 0)
		s.finish()
	}},
}

// furtherFaults are needed for the tests of single weaknesses.
var furtherFaults = map[string]*faultPlay{
	"old_handoff": {prefill: func(e *scriptEngine, w http.ResponseWriter, _ *http.Request, b *scriptBody) {
		e.plain(w, b, e.handoff(b, true))
	}},
	"gate_prefill": {prefill: func(e *scriptEngine, w http.ResponseWriter, r *http.Request, b *scriptBody) {
		select {
		case <-e.gate:
			e.plain(w, b, e.handoff(b, false))
		case <-r.Context().Done():
		}
	}},
	"gate_decode": {decode: func(e *scriptEngine, s *scriptStream, r *http.Request) {
		s.tokens(0, 1, 1)
		s.flush()
		select {
		case <-e.gate:
			s.tokens(1, s.b.tokens()-1, 0)
			s.finish()
		case <-r.Context().Done():
		}
	}},
	"decode_news": {decode: func(_ *scriptEngine, s *scriptStream, _ *http.Request) {
		s.event(`{"index":0,"text":"Hel","logprobs":null,"finish_reason":null,"novel_choice":{"a":1}}`, `,"novel":7`)
		s.token(1, "lo", true)
		s.finish()
	}},
}

// fault is the play that a body chose for this engine; nil for none.
func (e *scriptEngine) fault(b *scriptBody) *faultPlay {
	k := b.Fault.Kind
	if k == "" {
		return nil
	}
	f := recordedFaults[k]
	if f == nil {
		f = furtherFaults[k]
	}
	if k == "prefill_status" {
		f = &faultPlay{prefill: func(_ *scriptEngine, w http.ResponseWriter, r *http.Request, _ *scriptBody) {
			refuse(w, b.Fault.Status, "BadRequestError", "ask http://"+r.Host+"/secret for more")
		}}
	}
	if k == "decode_status" {
		f = &faultPlay{status: b.Fault.Status}
	}
	if f == nil {
		e.t.Errorf("engine %s: unscripted fault %q", e.iid, k)
		return nil
	}
	if b.Fault.IID != "" && b.Fault.IID != e.iid {
		return nil
	}
	return f
}
