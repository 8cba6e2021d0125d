package problem

import (
	"encoding/json"
	"errors"
	"reflect"
	"strconv"
	"strings"
)

// words is the text of an error without Go's own names: encoding/json and strconv tell
// programmers which type and function met a value, and people want the value's place.
func words(err error) string {
	s := err.Error()
	var kind *json.UnmarshalTypeError
	if errors.As(err, &kind) {
		at := "the document"
		if kind.Field != "" {
			at = kind.Field
		}
		s = strings.ReplaceAll(s, kind.Error(), at+" is of kind "+kind.Value+", want "+wanted(kind.Type))
	}
	var number *strconv.NumError
	if errors.As(err, &number) {
		s = strings.ReplaceAll(s, number.Error(), strconv.Quote(number.Num)+" is no number that fits here")
	}
	return s
}

// wanted names a type as JSON does.
func wanted(t reflect.Type) string {
	if t == nil {
		return "another kind"
	}
	switch t.Kind() {
	case reflect.Pointer:
		return wanted(t.Elem())
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "text"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "a whole number"
	case reflect.Float32, reflect.Float64:
		return "a number"
	}
	return "another kind"
}

// Of makes a problem of an error that carries none.
func Of(s Status, code string, err error) *Problem {
	return &Problem{Status: s, Code: code, Message: words(err), cause: err}
}
