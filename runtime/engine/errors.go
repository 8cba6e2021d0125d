package engine

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode"
)

// Words of the error type that engines use.
const (
	TypeBadRequest  = "BadRequestError"
	TypeSchema      = "Bad Request"
	TypeNotFound    = "NotFoundError"
	TypePermission  = "PermissionDeniedError"
	TypeInternal    = "InternalServerError"
	TypeUnavailable = "Service Unavailable"
)

// StatusError is an engine's answer other than success. Callers decide on Status and Type,
// never on Message.
type StatusError struct {
	Status  int    `json:"status"`
	Type    string `json:"type"`
	Message string `json:"message"` // printable, bounded
	Param   string `json:"param"`
	Code    int    `json:"code"`
}

func (e *StatusError) Error() string {
	s := fmt.Sprintf("engine answered %d", e.Status)
	if e.Type != "" {
		s += " " + e.Type
	}
	if e.Message != "" {
		s += ": " + e.Message
	}
	return s
}

// Client reports whether the engine blamed the request: a 4xx other than 408 and 429.
func (e *StatusError) Client() bool {
	return e.Status >= 400 && e.Status < 500 && e.Status != 408 && e.Status != 429
}

// Busy reports whether the engine is well and refuses for lack of room.
func (e *StatusError) Busy() bool {
	return e.Status == 429 || (e.Status == 503 && e.Type != "")
}

const maxMessage = 512

// ParseStatusError reads an error body of any of the shapes that engines use; an unreadable
// body gives an error with the status alone.
func ParseStatusError(status int, body []byte) *StatusError {
	e := &StatusError{Status: status, Code: status}
	var w struct {
		Object string          `json:"object"`
		Error  json.RawMessage `json:"error"`
		Detail json.RawMessage `json:"detail"`
	}
	if json.Unmarshal(body, &w) != nil {
		return e
	}
	if w.Object == "error" && len(w.Error) == 0 {
		w.Error = body // the error's members at top level
	}
	e.readObject(w.Error)
	if e.Message == "" {
		e.Message = text(w.Detail)
	}
	return e
}

func (e *StatusError) readObject(raw json.RawMessage) {
	var o struct {
		Message, Type, Param, Code json.RawMessage
	}
	if json.Unmarshal(raw, &o) != nil {
		e.Message = text(raw)
		return
	}
	e.Message, e.Type, e.Param = text(o.Message), text(o.Type), text(o.Param)
	var code int
	if json.Unmarshal(o.Code, &code) == nil && code != 0 {
		e.Code = code
	}
}

// text returns a JSON string made printable, or "".
func text(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return Printable(s, maxMessage)
}

// Printable drops control characters from foreign text and cuts it to at most limit bytes.
func Printable(s string, limit int) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return ' '
		case unicode.IsControl(r) || unicode.Is(unicode.Cf, r):
			return -1
		}
		return r
	}, s)
	if len(s) > limit {
		s = strings.ToValidUTF8(s[:limit], "")
	}
	return s
}

// MissingError names metrics that an engine should have and has not, or whose value they cannot have.
type MissingError struct{ Names []string }

func (e *MissingError) Error() string {
	return "read metrics: missing or impossible: " + strings.Join(e.Names, ", ")
}

// TooLargeError is returned when an engine's answer passes the client's bound.
type TooLargeError struct {
	What  string
	Limit int64
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("read %s: more than %d bytes", e.What, e.Limit)
}
