package discover

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/record"
)

// seen is what the hosts' evidence says; hosts that could not be read are absent.
type seen struct {
	host     map[string]Observation
	clock    map[string]Clock
	hardware map[string]Hardware
	network  map[string]Network
	images   map[string][]Image
	models   map[string]Checkpoints
}

// Judge checks each host alone and then what must be equal on all of them.
func (g Gate) Judge(v gates.View) []record.Finding {
	b := &bench{view: v, fleet: v.Fleet, addresses: fabricAddresses(v.Fleet)}
	s := b.read(g)
	for _, id := range v.Fleet.WorkHosts() {
		b.host = id
		if o, ok := s.host[id]; ok {
			b.judgeHost(o)
		}
		if c, ok := s.clock[id]; ok {
			b.judgeClock(c)
		}
		if h, ok := s.hardware[id]; ok {
			b.judgeHardware(h)
		}
		if n, ok := s.network[id]; ok {
			b.judgeNetwork(n)
		}
		b.judgeRDMA(s)
		b.judgeAffinity(s)
		b.judgeImages(s.images[id])
		for _, t := range s.models[id].Trees {
			b.judgeTree(t)
		}
	}
	b.judgeEqual(s)
	return b.found
}

// bench collects findings of one host after the other.
type bench struct {
	view      gates.View
	fleet     fleet.Fleet
	addresses map[string]netip.Addr // of engine hosts
	host      string
	key       record.Key
	found     []record.Finding
}

// add reports what was wanted and what is there instead. The result is the finding, so that
// it can be made a note.
func (b *bench) add(code, want, got, hint string) *record.Finding {
	b.found = append(b.found, record.Finding{Code: code, Host: b.host, Want: want, Got: got, Evidence: string(b.key), Hint: hint,
		Message: fmt.Sprintf("host %s: %s: got %s, want %s", b.host, code, got, want)})
	return &b.found[len(b.found)-1]
}

// read takes the evidence apart. Missing evidence is the runner's to report.
func (b *bench) read(g Gate) seen {
	s := seen{map[string]Observation{}, map[string]Clock{}, map[string]Hardware{}, map[string]Network{}, map[string][]Image{}, map[string]Checkpoints{}}
	for _, k := range g.Expect(b.fleet) {
		data, err := b.view.Evidence(k)
		if err != nil || k == inputsKey {
			continue
		}
		id := k.Subjects()[0]
		switch k.Kind() {
		case "host":
			err = keep(s.host, id, data, Parse)
		case "clock":
			err = keep(s.clock, id, data, decode[Clock])
		case "hardware":
			err = keep(s.hardware, id, data, ParseHardware)
		case "network":
			err = keep(s.network, id, data, ParseNetwork)
		case "images":
			err = keep(s.images, id, data, func(d []byte) ([]Image, error) { return ParseImages(d, b.fleet.Images(id)) })
		case "model":
			err = keep(s.models, id, data, decode[Checkpoints])
		}
		if err != nil {
			b.host, b.key = id, k
			b.add("host-unreadable", "an answer that is whole", err.Error(), "the evidence holds what its shell printed; narwhal gate run --again A asks again")
		}
	}
	return s
}

func keep[T any](into map[string]T, id string, data []byte, parse func([]byte) (T, error)) error {
	v, err := parse(data)
	if err == nil {
		into[id] = v
	}
	return err
}

func decode[T any](data []byte) (T, error) {
	var v T
	err := json.Unmarshal(data, &v)
	return v, err
}

// real reports whether the host carries an engine that is more than simulated.
func (b *bench) real() bool {
	return slices.ContainsFunc(b.fleet.Engines, func(e fleet.Engine) bool {
		l, ok := b.fleet.LaunchOf(e.IID)
		return ok && b.fleet.HostOf(e.IID) == b.host && l.Kind != fleet.LaunchSimulated
	})
}

// judgeEqual compares hosts with each other.
func (b *bench) judgeEqual(s seen) {
	digests := map[string]map[string]string{} // path → host → digest
	for id, o := range s.host {
		for _, f := range o.Files {
			if !slices.Contains(b.fleet.Deploy.Hosts[id].Files, f.Path) {
				continue // nobody asked for it
			}
			if digests[f.Path] == nil {
				digests[f.Path] = map[string]string{}
			}
			digests[f.Path][id] = f.SHA256
		}
	}
	for _, path := range slices.Sorted(maps.Keys(digests)) {
		b.equal(digests[path], hostKey, func(first string) *record.Finding {
			f := b.add("replica-differs", "", "", "copy the same file to both hosts")
			f.Message = fmt.Sprintf("%s differs between hosts %s and %s", path, first, b.host)
			return f
		})
	}
	b.equalModels(s)
	b.equalFabric(s)
	b.equalDevices(s)
}

// equal reports each host whose value is not that of the first one that has any.
func (b *bench) equal(by map[string]string, key func(string) record.Key, report func(first string) *record.Finding) {
	first, want := "", ""
	for _, id := range b.fleet.WorkHosts() {
		switch got := by[id]; {
		case got == "":
		case want == "":
			first, want = id, got
		case got != want:
			b.host, b.key = id, key(id)
			f := report(first)
			f.Want, f.Got = want, got
		}
	}
}

func size(n int64) string { return fleet.Size(n >> 20 << 20).String() }
