package fleet

import (
	"fmt"
	"reflect"
	"strings"
)

// What a router can work with. Times are seconds.
const (
	LeastTime  = 1e-4
	LeastWatch = 1e-3    // between two looks of the controller
	LeastChars = 1e-3    // of a token
	MostSLO    = 1e6     // of a promise
	MostNumber = 1 << 40 // of seconds, bytes, requests and ratios; more counts as this many
)

// Beyond is a number of a document that no router works with as it stands.
type Beyond struct {
	Path  string // controller.monitor_interval_s
	Value float64
	Least float64 // the least that works beside 0; 0 = the number is too large
	Most  float64 // what it counts as; of a promise, the most that is taken
}

// Refused reports whether no router takes the number; else it takes Most in its place.
func (b Beyond) Refused() bool { return b.Least > 0 || b.Most < MostNumber }

func (b Beyond) String() string {
	if b.Least > 0 {
		return fmt.Sprintf("%s is %g; the least is %g", b.Path, b.Value, b.Least)
	}
	if b.Refused() {
		return fmt.Sprintf("%s is %g; the most is %g", b.Path, b.Value, b.Most)
	}
	return fmt.Sprintf("%s is %g; it counts as %d", b.Path, b.Value, int64(MostNumber))
}

// OutOfReach returns the promises and the numbers of the sections controller, serving, engine and
// recovery that a router cannot work with.
func (f Fleet) OutOfReach() (out []Beyond) {
	look := func(path string, x, most float64) {
		least := 0.0
		switch {
		case path == "controller.monitor_interval_s":
			least = LeastWatch
		case path == "engine.chars_per_token":
			least = LeastChars
		case strings.HasSuffix(path, "_s"):
			least = LeastTime
		}
		switch {
		case x > most:
			out = append(out, Beyond{Path: path, Value: x, Most: most})
		case x > 0 && x < least:
			out = append(out, Beyond{Path: path, Value: x, Least: least})
		}
	}
	look("slo.ttft_s", f.SLO.TTFTS, MostSLO)
	look("slo.tpot_s", f.SLO.TPOTS, MostSLO)
	f.Numbers(func(path string, v reflect.Value) { look(path, asFloat(v), MostNumber) })
	return out
}

// Reachable is the document with MostNumber in the place of larger numbers of those sections.
func (f Fleet) Reachable() Fleet {
	f.Numbers(func(_ string, v reflect.Value) {
		if asFloat(v) <= MostNumber {
			return
		}
		if v.CanInt() {
			v.SetInt(MostNumber)
		} else {
			v.SetFloat(MostNumber)
		}
	})
	return f
}

func asFloat(v reflect.Value) float64 {
	if v.CanInt() {
		return float64(v.Int())
	}
	return v.Float()
}

// Numbers visits every number of the sections controller, serving, engine and recovery; visit may set it.
func (f *Fleet) Numbers(visit func(path string, v reflect.Value)) {
	var walk func(path string, v reflect.Value)
	walk = func(path string, v reflect.Value) {
		switch {
		case v.CanInt(), v.CanFloat():
			visit(path, v)
		case v.Kind() == reflect.Struct:
			for i := range v.NumField() {
				name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
				walk(path+"."+name, v.Field(i))
			}
		}
	}
	for _, s := range []struct {
		name string
		of   any
	}{{"controller", &f.Controller}, {"serving", &f.Serving}, {"engine", &f.Engine}, {"recovery", &f.Recovery}} {
		walk(s.name, reflect.ValueOf(s.of).Elem())
	}
}
