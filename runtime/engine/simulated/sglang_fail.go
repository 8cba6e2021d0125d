package simulated

import (
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/narwhal-fleet/narwhal/runtime/engine/simulated/core"
)

// errorBody renders a refusal in the dialect's shape: SGLang writes an error's members at top
// level, and wraps them in a stream only. What its scheduler gave up has the status for a type: in
// digits in a body, by name in a stream.
func (r *refusal) errorBody(flat, streamed bool) []byte {
	if !flat {
		return r.body(streamed)
	}
	colon, comma, kind := ":", ",", r.kind
	if streamed {
		colon, comma = ": ", ", "
		if kind == strconv.Itoa(r.status) {
			kind = strings.ToUpper(strings.ReplaceAll(http.StatusText(r.status), " ", "_"))
		}
	}
	b := []byte(`{"object"` + colon + `"error"` + comma + `"message"` + colon)
	b = appendString(b, r.message)
	b = append(b, comma+`"type"`+colon...)
	b = appendString(b, kind)
	b = append(b, comma+`"param"`+colon...)
	if r.param == "" {
		b = append(b, "null"...)
	} else {
		b = appendString(b, r.param)
	}
	b = append(b, comma+`"code"`+colon...)
	b = append(appendInt(b, int64(r.status)), '}')
	if streamed {
		b = append(append([]byte(`{"error": `), b...), '}')
	}
	return b
}

// sglRefusal has that dialect's words for what the core and the rooms say.
func sglRefusal(err error) *refusal {
	aborted := func(status int, message string) *refusal {
		return &refusal{status, strconv.Itoa(status), message, ""}
	}
	switch {
	case errors.Is(err, core.ErrDraining):
		return aborted(http.StatusServiceUnavailable, "the server is shutting down")
	case errors.Is(err, core.ErrBusy):
		return aborted(http.StatusServiceUnavailable, "the request queue is full")
	}
	return aborted(http.StatusInternalServerError, "request failed: "+err.Error())
}

// giveUp answers what the scheduler took and gave up: a stream then is a success whose first
// event is the error.
func (c *call) giveUp(w http.ResponseWriter, r *refusal) {
	if !c.p.stream {
		r.write(w)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	b := append([]byte("data: "), r.errorBody(true, true)...)
	_, _ = w.Write(append(b, "\n\ndata: [DONE]\n\n"...))
}
