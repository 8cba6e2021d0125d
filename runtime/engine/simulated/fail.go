package simulated

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/narwhal-fleet/narwhal/runtime/engine"
	"github.com/narwhal-fleet/narwhal/runtime/engine/simulated/core"
)

// refusal is an error answer.
type refusal struct {
	status  int
	kind    string
	message string
	param   string
}

func (r *refusal) Error() string { return r.message }

// errSilent marks requests that get no answer for as long as their client waits.
var errSilent = errors.New("engine says nothing more")

func badRequest(param, format string, a ...any) *refusal {
	return &refusal{http.StatusBadRequest, engine.TypeBadRequest, fmt.Sprintf(format, a...), param}
}

// badSchema is the validator's refusal: the body never reached the serving layer.
func badSchema(loc, format string, a ...any) *refusal {
	return &refusal{http.StatusBadRequest, engine.TypeSchema, "1 validation error:\n  " + fmt.Sprintf(format, a...), loc}
}

func internal(message string) *refusal {
	return &refusal{http.StatusInternalServerError, engine.TypeInternal, message, ""}
}

// refusalOf maps the core's errors to what a client sees.
func (s *Server) refusalOf(err error) *refusal {
	var r *refusal
	if errors.As(err, &r) {
		return r
	}
	if s.sgl() {
		return sglRefusal(err)
	}
	switch {
	case errors.Is(err, core.ErrDead):
		return internal("EngineCore encountered an issue. The simulated core is dead.")
	case errors.Is(err, core.ErrDraining):
		return internal("cannot schedule new futures after shutdown")
	case errors.Is(err, core.ErrBusy):
		return busy()
	}
	return internal("Internal server error")
}

func busy() *refusal {
	return &refusal{http.StatusServiceUnavailable, engine.TypeUnavailable,
		"The engine is currently busy. Try again later or elsewhere.", ""}
}

// statusRefusal is an error of the type that goes with a status.
func statusRefusal(status int) *refusal {
	kind := engine.TypeInternal
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		kind = engine.TypePermission
	case http.StatusNotFound:
		kind = engine.TypeNotFound
	case http.StatusServiceUnavailable:
		kind = engine.TypeUnavailable
	default:
		if status < 500 {
			kind = engine.TypeBadRequest
		}
	}
	return &refusal{status, kind, "injected status", ""}
}

func (r *refusal) body(spaced bool) []byte {
	colon, comma := ":", ","
	if spaced {
		colon, comma = ": ", ", "
	}
	b := []byte(`{"error"` + colon + `{"message"` + colon)
	b = appendString(b, r.message)
	b = append(b, comma+`"type"`+colon...)
	b = appendString(b, r.kind)
	b = append(b, comma+`"param"`+colon...)
	if r.param == "" {
		b = append(b, "null"...)
	} else {
		b = appendString(b, r.param)
	}
	b = append(b, comma+`"code"`+colon...)
	b = appendInt(b, int64(r.status))
	return append(b, "}}"...)
}

func (r *refusal) write(w http.ResponseWriter) {
	rec, ok := w.(*recorder)
	writeJSON(w, r.status, r.errorBody(ok && rec.flat, false))
}

func writeJSON(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", fmt.Sprint(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body)
}
