package schema

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"

	"github.com/narwhal-fleet/narwhal/fleet"
)

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

func engineField(i int, name string) trail { return trail{key("engines"), at(i), key(name)} }

func (c checker) engines() {
	if c.f.Model == "" {
		c.fault("model-empty", "model", "is empty", "name the model as clients ask for it")
	}
	ids, urls := map[string]int{}, map[string]int{}
	for i, e := range c.f.Engines {
		c.engineID(i, e, ids)
		if p := engineField(i, "url"); !c.rep.isBlamed(p) {
			c.url("engine-url-form", p, e.URL)
			if first, ok := urls[fleet.AddressKey(e.URL)]; ok && e.URL != "" {
				c.rep.add(fault{rule: "engine-url-unique", path: p, got: show(p, c.at(p)), want: "an address of its own",
					says: fmt.Sprintf("engines[%d] has the same address", first)})
			} else {
				urls[fleet.AddressKey(e.URL)] = i
			}
		}
		c.attestation(i, e)
	}
	if h := c.f.Hardware; h != nil && h.TensorParallel > h.AcceleratorsPerEngine {
		c.fault("hardware-shards", "hardware.tensor_parallel",
			fmt.Sprintf("%d shards do not fit %d accelerators per engine", h.TensorParallel, h.AcceleratorsPerEngine), "")
	}
}

func (c checker) at(p trail) *node {
	n, ok := c.root.find(p)
	if !ok {
		return nil
	}
	return n
}

func (c checker) engineID(i int, e fleet.Engine, seen map[string]int) {
	p := engineField(i, "iid")
	if first, ok := seen[e.IID]; ok {
		line, _ := 0, 0
		if n := c.at(engineField(first, "iid")); n != nil {
			line, _ = c.rep.sources[n.pos.src].locate(n.pos)
		}
		c.rep.add(fault{rule: "engine-id-unique", path: p, got: quote(e.IID), want: "an id of its own",
			says: fmt.Sprintf("%s is already the id of engines[%d], line %d", quote(e.IID), first, line)})
	} else {
		seen[e.IID] = i
	}
	odd := strings.ContainsFunc(e.IID, func(r rune) bool { return r == '"' || r == '\\' || r == '\'' || unicode.IsControl(r) })
	if e.IID == "" || odd {
		c.rep.add(fault{rule: "engine-id-form", path: p, got: quote(e.IID), want: "a name without quotes, backslashes and control characters"})
	}
}

func (c checker) attestation(i int, e fleet.Engine) {
	p := engineField(i, "attestation_url")
	if c.rep.isBlamed(p) {
		return
	}
	if e.AttestationURL != "" {
		c.url("attestation-url-form", p, e.AttestationURL)
	} else if c.f.EngineContract != nil {
		c.rep.add(fault{rule: "attestation-url-missing", path: p, got: "nothing", want: "the address of the engine's sidecar",
			says: "is empty although engine_contract is set; preflight would fail"})
	}
}

// url reports an address that no request can be sent to.
func (c checker) url(rule string, p trail, s string) {
	switch says := fleet.AddressFault(s); {
	case says == "":
	case says != fleet.AddressUser:
		c.rep.add(fault{rule: rule, path: p, says: says, got: show(p, c.at(p)), want: "http://HOST:PORT or https://HOST:PORT"})
	case c.f.Deploy != nil:
		c.rep.add(fault{rule: "secret-literal", path: p, says: says + ", which would reach command lines and the record", got: hidden(s),
			want: "an address without them", hint: "give the engine's key by name: engine.engine_api_key_env"})
	default:
		c.rep.add(fault{rule: "engine-url-user", path: p, says: says, got: "a value that is not shown",
			want: "an address without them", hint: "give the engine's key by name: engine.engine_api_key_env"})
	}
}
