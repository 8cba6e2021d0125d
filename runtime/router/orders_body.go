package router

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/engine/splice"
)

// order is the body of a lifecycle call.
type order struct {
	Engines  []string
	Wave     bool
	Deadline *float64
	Digest   string // of the profile store, in hex; "" = any
}

const maxOrderBytes = 64 << 10

// misfit is what is wrong with one part of an order, in the form of the contract's 422.
type misfit struct {
	Type  string          `json:"type"`
	Loc   []any           `json:"loc"`
	Msg   string          `json:"msg"`
	Input json.RawMessage `json:"input"`
}

// readOrder answers with 422 itself when the body does not fit.
func (r *Router) readOrder(w http.ResponseWriter, q *http.Request) (order, bool) {
	out := http.NewResponseController(w)
	_ = out.SetReadDeadline(time.Now().Add(r.set.HTTP.BodyPatience))
	b, err := io.ReadAll(http.MaxBytesReader(w, q.Body, maxOrderBytes))
	if err != nil {
		w.Header().Set("Connection", "close")
		return order{}, unfit(w, misfit{Type: "json_invalid", Loc: []any{"body"}, Msg: fmt.Sprintf("the body cannot be read whole; it has at most %d bytes", maxOrderBytes)})
	}
	_ = out.SetReadDeadline(time.Time{})
	if len(b) == 0 {
		return order{}, true
	}
	o, problems := parseOrder(b)
	if len(problems) > 0 {
		return order{}, unfit(w, problems...)
	}
	return o, true
}

func unfit(w http.ResponseWriter, problems ...misfit) bool {
	writeJSON(w, http.StatusUnprocessableEntity, map[string]any{"detail": problems})
	return false
}

// parseOrder names every member that does not fit. Unknown members are ignored.
func parseOrder(b []byte) (o order, problems []misfit) {
	doc, f := parseObject(b)
	if f != nil {
		return o, []misfit{{Type: "json_invalid", Loc: []any{"body"}, Msg: f.message}}
	}
	read := func(key, typ, msg string, out any) {
		v, ok := doc.Get(key)
		if ok && (string(v) == "null" && key == "wave" || json.Unmarshal(v, out) != nil) {
			problems = append(problems, misfit{typ, []any{"body", key}, msg, shortInput(v)})
		}
	}
	read("wave", "bool_type", "Input should be a valid boolean", &o.Wave)
	read("deadline_s", "float_type", "Input should be a valid number", &o.Deadline)
	read("sha256", "string_type", "Input should be a valid string", &o.Digest)
	var list []json.RawMessage
	read("engines", "list_type", "Input should be a valid list", &list)
	for i, v := range list {
		id, ok := splice.String(v)
		if !ok {
			problems = append(problems, misfit{"string_type", []any{"body", "engines", i}, "Input should be a valid string", shortInput(v)})
		}
		o.Engines = append(o.Engines, id)
	}
	return o, problems
}

// shortInput repeats a value, null for one that is long.
func shortInput(v json.RawMessage) json.RawMessage {
	if len(v) > 256 {
		return nil
	}
	return v
}
