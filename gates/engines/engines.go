// Package engines is gate C: engines are launched, proven live, and their cache layout
// is captured.
//
// It promises that an engine already running from the same launch is adopted, that a
// launch names its ports before it takes them, and that whoever answers on an engine's
// address is the process that was launched. It refuses a fleet whose engines differ in
// version, model or cache layout.
package engines

import (
	"encoding/json"
	"strconv"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/record"
)

// Gate is gate C.
type Gate struct{}

// Info names the gate.
func (Gate) Info() gates.Info {
	return gates.Info{Letter: "C", Name: "engines", Title: "Engines", Promise: "engines run their launch and answer alike"}
}

func portsKey(e string) record.Key { return record.NewKey("C", "ports", e) }

func launchKey(e string) record.Key { return record.NewKey("C", "launch", e) }

func liveKey(e string) record.Key { return record.NewKey("C", "live", e) }

func rankKey(e string, rank int) record.Key {
	return record.NewKey("C", "rank", e, strconv.Itoa(rank))
}

func joinedKey(e string, rank int) record.Key {
	return record.NewKey("C", "joined", e, strconv.Itoa(rank))
}

func containerKey(e string) record.Key { return record.NewKey("C", "container", e) }

func listenerKey(e string) record.Key {
	return record.NewKey("C", "listener", e)
}

func cacheKey(e string) record.Key { return record.NewKey("C", "cache", e) }

// Expect wants five pieces of evidence an engine, one more of a container, and two of each
// further rank.
func (Gate) Expect(f fleet.Fleet) []record.Key {
	var keys []record.Key
	for _, e := range f.EngineIDs() {
		keys = append(keys, portsKey(e), launchKey(e))
		for rank := 1; rank <= f.Workers(e); rank++ {
			keys = append(keys, rankKey(e, rank), joinedKey(e, rank))
		}
		keys = append(keys, liveKey(e), listenerKey(e))
		if l, _ := f.LaunchOf(e); l.Kind == fleet.LaunchContainer {
			keys = append(keys, containerKey(e))
		}
		keys = append(keys, cacheKey(e))
	}
	return keys
}

// ProcessName is the name under which an engine runs on its host.
func ProcessName(iid string) string { return fleet.RankProcess(iid, 0) }

// Halts stops before a launch whose ports are taken, and before asking an engine that is
// not ready for its cache.
func (Gate) Halts(key record.Key, data []byte) string {
	switch key.Kind() {
	case "ports":
		var p Ports
		if json.Unmarshal(data, &p) == nil && len(p.Taken) > 0 {
			return p.Taken[0].Address + " is taken"
		}
	case "live":
		var l Live
		if json.Unmarshal(data, &l) == nil && !l.Ready {
			return "the engine is not ready"
		}
	}
	return ""
}

// Facts are the processes that were launched.
func (Gate) Facts(key record.Key, data []byte) map[string]string {
	want := ""
	switch subjects := key.Subjects(); {
	case key.Kind() == "launch" && len(subjects) == 1:
		want = ProcessName(subjects[0])
	case key.Kind() == "rank" && len(subjects) == 2:
		if n, err := strconv.Atoi(subjects[1]); err == nil {
			want = fleet.RankProcess(subjects[0], n)
		}
	}
	var l gates.Launched
	if want == "" || json.Unmarshal(data, &l) != nil || l.Name != want {
		return nil
	}
	return l.ProcessFacts()
}
