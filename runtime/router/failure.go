package router

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/narwhal-fleet/narwhal/runtime/engine"
	"github.com/narwhal-fleet/narwhal/runtime/engine/wire"
	"github.com/narwhal-fleet/narwhal/runtime/journal"
	"github.com/narwhal-fleet/narwhal/runtime/model"
)

// Breaker classes: what a failure says about an engine.
const (
	classNone       = "" // a client's fault, or the router's own
	classConnection = "connection"
	classTimeout    = "timeout"
	classOverload   = "overload"
	classInference  = "inference_status"
	classHandoff    = "kv_handoff"
	classStream     = "stream"
	classLiveness   = "liveness"
)

var classes = []string{classConnection, classTimeout, classOverload, classInference, classHandoff, classStream, classLiveness}

// Phases of a request.
const (
	phaseAdmission = "admission"
	phasePrefill   = "prefill"
	phaseDecode    = "decode"
)

// Causes that end a request's context.
var (
	errDeadline   = errors.New("original request deadline expired")
	errShutdown   = errors.New("router is shutting down")
	errPrefill    = errors.New("prefill leg took too long")
	errStuck      = errors.New("engine makes no progress on what it holds")
	errCount      = errors.New("engine did not count in time")
	errFirstToken = errors.New("no first token in time")
	errGap        = errors.New("engine went silent between tokens")
	errFinished   = errors.New("request has ended")
)

// failure is how a request, or one attempt of it, ended badly.
type failure struct {
	status     int // of the answer to the client
	message    string
	typ        string
	param      *string // present when hasParam
	hasParam   bool
	code       *string // present when hasCode
	hasCode    bool
	retryAfter int // seconds; 0 = no header

	terminal string
	reason   model.Reason
	detail   string // journal only

	// Of an engine fault:
	phase     string
	class     string
	engineID  string
	source    string // producer of a failed decode leg; "" = none
	upstream  int    // engine's status; 0 = none
	transient bool
	sibling   bool   // only because the other leg of the pair failed
	gone      bool   // the engine's process does not answer any more
	free      bool   // its retry takes no credit
	ready     string // readiness reason of a rejection
	unsaid    bool   // the client gets no answer, not even a status
}

func (f *failure) Error() string { return f.typ + ": " + f.message }

func invalid(param, format string, args ...any) *failure {
	f := &failure{status: 400, typ: "invalid_request_error", message: fmt.Sprintf(format, args...), terminal: journal.Invalid, hasParam: true, hasCode: true}
	if param != "" {
		f.param = &param
	}
	return f
}

func coded(status int, code, message string) *failure {
	return &failure{status: status, typ: code, message: message, code: &code, hasCode: true}
}

func overloaded(reason model.Reason, terminal, message string, after int) *failure {
	return &failure{status: 429, typ: "server_overloaded_error", message: message, terminal: terminal, reason: reason, retryAfter: after, hasParam: true, hasCode: true}
}

const upstreamFailed = "Upstream request failed"

// engineFault describes a failed leg. status is 502, or 504 for timeouts.
func engineFault(phase, iid string, reason model.Reason, class, detail string, transient bool) *failure {
	status := 502
	if reason == model.ReasonTimeout {
		status = 504
	}
	f := coded(status, phase, upstreamFailed)
	f.terminal, f.reason, f.phase, f.class, f.engineID = journal.Failed, reason, phase, class, iid
	f.detail, f.transient = engine.Printable(detail, 240), transient
	return f
}

// fromStatus judges an engine's refusal. A 4xx that blames the request goes to the client
// with its message and the member that it names; it says nothing about the engine.
func fromStatus(phase, iid string, e *engine.StatusError) *failure {
	var f *failure
	switch {
	case e.Client() && passed(e.Status):
		f = invalid(scrub(ofBody(e.Param)), "%s", scrub(e.Message))
		if e.Message == "" {
			f.message = "the engine refused the request"
		}
		f.status, f.phase, f.engineID = e.Status, phase, iid
	case e.Status == 401 || e.Status == 403: // this router's own fault
		f = engineFault(phase, iid, model.ReasonRejected, classNone, e.Error(), false)
	case e.Status == 408:
		f = engineFault(phase, iid, model.ReasonTimeout, classOverload, e.Error(), true)
	case e.Busy():
		class := classOverload
		if e.Status == 503 {
			class = classNone // its own queue is full: another engine, and nothing against this one
		}
		f = engineFault(phase, iid, model.ReasonOverloaded, class, e.Error(), true)
		f.status, f.retryAfter = 429, 1
		f.typ, f.hasParam, f.code = "server_overloaded_error", true, nil
	case e.Status == 504:
		f = engineFault(phase, iid, model.ReasonTimeout, classInference, e.Error(), true)
	case e.Status >= 500 && e.Status < 600:
		f = engineFault(phase, iid, model.ReasonEngine, classInference, e.Error(), e.Status <= 504)
	default: // a redirection is followed nowhere, and what no request of a client's is to blame for is the engine's
		f = engineFault(phase, iid, model.ReasonEngine, classInference, e.Error(), true)
	}
	f.upstream = e.Status
	return f
}

// ofBody names a member as this router does: the schemas of engines put the body before it.
func ofBody(param string) string {
	if name, ok := strings.CutPrefix(param, "body."); ok {
		return name
	}
	return param
}

func passed(status int) bool { return status == 400 || status == 404 || status == 413 || status == 422 }

// fromTransport judges an error of the connection. ctx is the leg's context: its cause says
// which of the router's own limits ended it.
func fromTransport(ctx context.Context, phase, iid string, err error) *failure {
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errDeadline), errors.Is(cause, errShutdown), errors.Is(cause, errFinished):
		return ended(cause)
	case errors.Is(cause, errSibling):
		f := engineFault(phase, iid, model.ReasonEngine, classNone, cause.Error(), true)
		f.sibling = true
		return f
	case errors.Is(cause, errEngineGone):
		f := engineFault(phase, iid, model.ReasonConnection, classNone, cause.Error(), true)
		f.gone = true
		return f
	case errors.Is(cause, errPrefill), errors.Is(cause, errStuck), errors.Is(cause, errCount):
		return engineFault(phase, iid, model.ReasonTimeout, classTimeout, cause.Error(), true)
	case errors.Is(cause, errFirstToken), errors.Is(cause, errGap):
		return engineFault(phase, iid, model.ReasonTimeout, classStream, cause.Error(), true)
	case cause != nil:
		return left()
	}
	var large *engine.TooLargeError
	var op *net.OpError
	switch {
	case errors.Is(err, errAnswerMemory):
		return noAnswerMemory(phase, iid)
	case errors.Is(err, wire.ErrPool), local(err):
		f := engineFault(phase, iid, model.ReasonPool, classNone, err.Error(), false)
		f.status = 504
		return f
	case errors.As(err, &large):
		f := engineFault(phase, iid, model.ReasonLimit, classNone, err.Error(), false)
		f.message = "Response exceeds the configured limit"
		return f
	case errors.Is(err, os.ErrDeadlineExceeded) && errors.As(err, &op) && op.Op == "dial":
		f := engineFault(phase, iid, model.ReasonUnreach, classConnection, err.Error(), true)
		f.status = 504
		return f
	case errors.Is(err, syscall.ECONNREFUSED), errors.As(err, &op) && op.Op == "dial":
		f := engineFault(phase, iid, model.ReasonUnreach, classConnection, err.Error(), true)
		f.gone = errors.Is(err, syscall.ECONNREFUSED)
		return f
	case errors.Is(err, wire.ErrNoAnswer), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, io.ErrUnexpectedEOF):
		f := engineFault(phase, iid, model.ReasonConnection, classTimeout, err.Error(), true)
		f.gone = true
		return f
	case errors.Is(err, os.ErrDeadlineExceeded):
		return engineFault(phase, iid, model.ReasonTimeout, classTimeout, err.Error(), true)
	}
	return engineFault(phase, iid, model.ReasonConnection, classTimeout, err.Error(), true)
}

// local reports whether a connection failed for want of something of this machine's own.
func local(err error) bool {
	for _, e := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.EADDRNOTAVAIL} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// ended turns the end of the request itself into its outcome.
func ended(cause error) *failure {
	switch {
	case errors.Is(cause, errDeadline):
		return &failure{status: 504, typ: "request_expired", message: errDeadline.Error(), terminal: journal.Expired, reason: model.ReasonDeadline}
	case errors.Is(cause, errShutdown):
		f := coded(503, "shutdown", "Router is shutting down")
		f.terminal, f.reason, f.retryAfter, f.detail = journal.Expired, model.ReasonShutdown, 1, errShutdown.Error()
		return f
	}
	return left()
}

func left() *failure {
	return &failure{terminal: journal.Cancelled, message: "client left", unsaid: true}
}

func internal(detail string) *failure {
	return &failure{status: 500, typ: "internal", message: "Internal Server Error", terminal: journal.Failed, reason: model.ReasonInternal, detail: detail}
}

func ptr[T any](v T) *T { return &v }

// body is the JSON answer of a failure.
func (f *failure) body() []byte {
	b := append([]byte(`{"error":{"message":`), quote(f.message)...)
	b = append(append(b, `,"type":`...), quote(f.typ)...)
	b = member(b, "param", f.hasParam, f.param)
	b = member(b, "code", f.hasCode, f.code)
	return append(b, '}', '}')
}

func member(b []byte, key string, present bool, v *string) []byte {
	if !present {
		return b
	}
	b = append(append(append(b, `,"`...), key...), `":`...)
	if v == nil {
		return append(b, "null"...)
	}
	return append(b, quote(*v)...)
}

// event is the terminal event of a stream that fails after its first output.
func (f *failure) event() []byte {
	code := f.terminal
	if code != journal.Expired {
		code = journal.Failed
	}
	phase := f.phase
	if phase == "" {
		phase = phaseDecode
	}
	e := failure{message: f.message, typ: phase, code: &code, hasCode: true}
	return append(append([]byte("data: "), e.body()...), '\n', '\n')
}

func seconds(n int) string { return strconv.Itoa(n) }
