package router

import (
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/narwhal-fleet/narwhal/fleet"
)

// Each number of the plain document, alone at either end of what it can be written as, is refused
// by its name or makes a router that starts; with a large one requests are served.
func TestEachNumberAtItsEnds(t *testing.T) {
	type end struct {
		path  string
		value float64
	}
	var ends []end
	probe := fleetDoc()
	probe.Numbers(func(path string, v reflect.Value) {
		values := []float64{1e-300, 1e-10, 1e300, math.MaxFloat64}
		if v.CanInt() {
			values = []float64{1, math.MaxInt64}
		}
		for _, x := range values {
			ends = append(ends, end{path, x})
		}
	})
	for _, e := range ends {
		t.Run(fmt.Sprintf("%s is %g", e.path, e.value), func(t *testing.T) {
			var refused error
			b := startBed(t, 1, 1, quick(), func(c *Config) {
				c.Fleet.Numbers(func(path string, v reflect.Value) {
					switch {
					case path != e.path:
					case v.CanFloat():
						v.SetFloat(e.value)
					case e.value == math.MaxInt64:
						v.SetInt(math.MaxInt64)
					default:
						v.SetInt(int64(e.value))
					}
				})
				if refused = Check(*c); refused != nil {
					c.Fleet = fleetOf(c.Fleet.Engines)
				}
			})
			if refused != nil {
				if !strings.Contains(refused.Error(), e.path) || e.value > 1 {
					t.Errorf("refused with %v", refused)
				}
				return
			}
			a := b.complete(map[string]any{"prompt": "x", "max_tokens": 2})
			if e.value > 1 && a.status != 200 || a.status == 0 {
				t.Errorf("%d %s", a.status, a.body)
			}
		})
	}
}

func fleetOf(engines []fleet.Engine) fleet.Fleet {
	f := fleetDoc()
	f.Engines = engines
	return f
}
