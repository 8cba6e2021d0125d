// Package gatestest gives tests of gates a view of evidence that no run recorded.
//
// It promises a view like that of a record: inputs frozen in A/inputs, objects by digest.
// It refuses to make up evidence: what is not given is missing.
package gatestest

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/record"
)

// View shows evidence taken at a time. Values are JSON, bytes stand as they are.
func View(t testing.TB, f fleet.Fleet, rel gates.Release, at time.Time, evidence map[record.Key]any) gates.View {
	t.Helper()
	raw := map[record.Key][]byte{}
	for k, v := range evidence {
		b, ok := v.([]byte)
		if !ok {
			var err error
			if b, err = json.Marshal(v); err != nil {
				t.Fatal(err)
			}
		}
		raw[k] = b
	}
	v, err := gates.ViewOf(f, rel, at, raw)
	if err != nil {
		t.Fatal(err)
	}
	return v
}
