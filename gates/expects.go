package gates

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates/record"
)

// expected are the keys of a gate's evidence, sorted by bytes, each once.
func expected(g Gate, f fleet.Fleet) []record.Key {
	keys := append([]record.Key{}, g.Expect(f)...)
	slices.Sort(keys)
	return slices.Compact(keys)
}

// expects says why the keys that a verdict names as expected do not go with it, in the state before it.
// A verdict that names none says nothing about them.
func expects(letter string, said record.Verdict, state record.State, load func(record.Ref) ([]byte, error)) error {
	if said.Expects == nil {
		return nil
	}
	b, err := load(*said.Expects)
	if err != nil {
		return nil // the missing object is listed
	}
	var keys []record.Key
	if err := json.Unmarshal(b, &keys); err != nil || keys == nil {
		return errors.New("what it expects is no list of keys")
	}
	for i, k := range keys {
		if !strings.HasPrefix(string(k), letter+"/") || i > 0 && keys[i-1] >= k {
			return errors.New("what it expects is not a sorted list of its keys")
		}
		if e, ok := state.Evidence(k); said.State == record.VerdictPassed && (!ok || e.Stale) {
			return fmt.Errorf("it passed without %s, which it expects", k)
		}
	}
	return nil
}
