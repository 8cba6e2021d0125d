package gates

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates/record"
)

// ViewOf shows evidence, taken at a time, that no run recorded: as in a record the inputs stand in
// A/inputs, and objects are found by their digest.
func ViewOf(f fleet.Fleet, rel Release, at time.Time, evidence map[record.Key][]byte) (View, error) {
	inputs, err := json.Marshal(map[string]any{"fleet": f, "release": rel})
	if err != nil {
		return View{}, err
	}
	objects, letters := map[string][]byte{}, map[string]record.Gate{}
	put := func(k record.Key, b []byte) {
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
	put("A/inputs", inputs)
	for k, b := range evidence {
		put(k, b)
	}
	return ViewAt(record.State{Gates: letters}, func(r record.Ref) ([]byte, error) {
		b, ok := objects[r.SHA256]
		if !ok {
			return nil, fmt.Errorf("no object %s", r.SHA256)
		}
		return b, nil
	})
}
