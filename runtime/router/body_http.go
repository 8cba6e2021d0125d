package router

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/engine"
	"github.com/narwhal-fleet/narwhal/runtime/journal"
	"github.com/narwhal-fleet/narwhal/runtime/model"
)

// readBody takes the body of a client that may send one. The caller drops it, also after a
// failure; nil is none.
func (r *Router) readBody(ctx context.Context, w http.ResponseWriter, hr *http.Request, out *http.ResponseController) (*payload, *failure) {
	most, limits := r.set.Fleet.Serving.MaxRequestBytes, r.set.HTTP
	if f := encoded(hr.Header); f != nil {
		refuseBody(w, hr, out)
		return nil, f
	}
	if hr.ContentLength > most {
		refuseBody(w, hr, out)
		return nil, tooLarge()
	}
	start := time.Now()
	b, err := r.bodies.read(ctx, intake{out: out, src: hr.Body, declared: hr.ContentLength, most: most, whole: limits.BodyTimeout, patience: limits.BodyPatience})
	// A failed read ends the connection's context too: only the router's own causes count.
	cause := context.Cause(ctx)
	late := errors.Is(err, os.ErrDeadlineExceeded)
	switch {
	case (err == nil || late) && (errors.Is(cause, errDeadline) || errors.Is(cause, errShutdown)):
		return b, ended(cause)
	case err == nil && ctx.Err() != nil:
		return b, left()
	case err == nil:
		_ = out.SetReadDeadline(time.Time{})
		return b, nil
	case errors.Is(err, errBodyMemory):
		refuseBody(w, hr, out)
		return b, overloaded(model.ReasonInflight, journal.Rejected, "the bodies of the requests in the router take all the memory that they may have together", 1)
	case errors.Is(err, errBodyLarge):
		refuseBody(w, hr, out)
		return b, tooLarge()
	case late && time.Since(start) >= limits.BodyTimeout:
		return b, slowBody(w, fmt.Sprintf("the request body did not arrive within %s", limits.BodyTimeout))
	case late || errors.Is(err, errBodySlow):
		return b, slowBody(w, fmt.Sprintf("the request body came slower than %d bytes a second", bodyRate))
	case gone(err):
		return b, endedEarly(w)
	}
	w.Header().Set("Connection", "close")
	return b, invalid("", "the request body cannot be read: its transfer encoding is broken")
}

// encoded refuses a body that is not sent as it is.
func encoded(h http.Header) *failure {
	for _, v := range h.Values("Content-Encoding") {
		for one := range strings.SplitSeq(v, ",") {
			if one = strings.TrimSpace(one); one != "" && !strings.EqualFold(one, "identity") {
				f := invalid("", "the request body is encoded as %s; send it without Content-Encoding", quote(engine.Printable(one, 40)))
				f.status, f.code = http.StatusUnsupportedMediaType, ptr("unsupported_content_encoding")
				return f
			}
		}
	}
	return nil
}

// slowBody ends the connection: what is still on its way cannot be told from a next request.
func slowBody(w http.ResponseWriter, message string) *failure {
	w.Header().Set("Connection", "close")
	f := invalid("", "%s", message)
	f.status, f.typ = http.StatusRequestTimeout, "request_timeout"
	return f
}

// endedEarly answers a client that only stopped sending, should it still listen: otherwise it
// would be told 200.
func endedEarly(w http.ResponseWriter) *failure {
	w.Header().Set("Connection", "close")
	f := invalid("", "the request body ended early")
	f.terminal = journal.Cancelled
	told(f, false)
	writeBody(w, f.status, f.body())
	l := left()
	l.unsaid = false
	return l
}

func tooLarge() *failure {
	f := invalid("", "request body exceeds max_request_bytes")
	f.status, f.typ = http.StatusRequestEntityTooLarge, "request_too_large"
	return f
}

// refuseBody ends the connection: the rest of the body is not waited for.
func refuseBody(w http.ResponseWriter, hr *http.Request, out *http.ResponseController) {
	w.Header().Set("Connection", "close")
	if hr.Header.Get("Expect") == "" {
		// So that the server reads on a little before it closes: a reset would overtake the
		// answer. A client that has sent nothing yet is not waited for.
		_ = out.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		_, _ = http.MaxBytesReader(w, hr.Body, 0).Read(make([]byte, 1))
	}
}

// gone reports whether a read of a body failed because the client left.
func gone(err error) bool {
	var broken net.Error
	return errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) || errors.As(err, &broken)
}
