// Package gatestest gives tests of gates a view of evidence that no run recorded.
//
// It promises a view like that of a record: inputs frozen in A/inputs, objects by digest.
// It refuses to make up evidence: what is not given is missing.
package gatestest

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/record"
)

// View shows evidence taken at a time. Values are JSON, bytes stand as they are.
func View(t testing.TB, f fleet.Fleet, rel gates.Release, at time.Time, evidence map[record.Key]any) gates.View {
	t.Helper()
	objects, letters := map[string][]byte{}, map[string]record.Gate{}
	put := func(k record.Key, v any) {
		b, ok := v.([]byte)
		if !ok {
			var err error
			if b, err = json.Marshal(v); err != nil {
				t.Fatal(err)
			}
		}
		sum := sha256.Sum256(b)
		ref := record.Ref{SHA256: hex.EncodeToString(sum[:]), Bytes: int64(len(b))}
		objects[ref.SHA256] = b
		g := letters[k.Gate()]
		if g.Evidence == nil {
			g.Evidence = map[record.Key]record.Entry{}
		}
		g.Evidence[k] = record.Entry{Ref: ref, Time: at}
		letters[k.Gate()] = g
	}
	put("A/inputs", map[string]any{"fleet": f, "release": rel})
	for k, v := range evidence {
		put(k, v)
	}
	v, err := gates.ViewAt(record.State{Gates: letters}, func(r record.Ref) ([]byte, error) {
		b, ok := objects[r.SHA256]
		if !ok {
			return nil, fmt.Errorf("no object %s", r.SHA256)
		}
		return b, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return v
}
