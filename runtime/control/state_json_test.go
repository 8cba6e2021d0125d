package control

import (
	"encoding/json"
	"reflect"
	"testing"
	"unsafe"
)

// A state that was written and read again is the same in every member, also in one that is new.
func TestStateIsWrittenWhole(t *testing.T) {
	var s State
	fill(t, reflect.ValueOf(&s).Elem(), new(int))
	b, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var again State
	if err := json.Unmarshal(b, &again); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(s, again) {
		t.Errorf("%+v\nbecame %+v", s, again)
	}
}

// fill gives each member a value of its own.
func fill(t *testing.T, v reflect.Value, n *int) {
	*n++
	if v.CanAddr() && !v.CanSet() {
		v = reflect.NewAt(v.Type(), unsafe.Pointer(v.UnsafeAddr())).Elem()
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(t, v.Field(i), n)
		}
	case reflect.Array:
		for i := range v.Len() {
			fill(t, v.Index(i), n)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(t, v.Elem(), n)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range 2 {
			fill(t, v.Index(i), n)
		}
	case reflect.Float64:
		v.SetFloat(float64(*n) + 0.1)
	case reflect.Int:
		v.SetInt(int64(*n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.String:
		v.SetString("x" + string(rune('a'+*n%26)))
	default:
		t.Fatalf("a member is a %s, which this test does not fill", v.Type())
	}
}
