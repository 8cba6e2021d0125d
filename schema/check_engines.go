package schema

import (
	"fmt"
	"net/url"
	"regexp"
	"strconv"
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
			if first, ok := urls[e.URL]; ok && e.URL != "" {
				c.rep.add(fault{rule: "engine-url-unique", path: p, got: show(p, c.at(p)), want: "an address of its own",
					says: fmt.Sprintf("engines[%d] has the same address", first)})
			} else {
				urls[e.URL] = i
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
	says := urlFault(s)
	if says != "" {
		c.rep.add(fault{rule: rule, path: p, says: says, got: show(p, c.at(p)), want: "http://HOST:PORT or https://HOST:PORT"})
		return
	}
	if u, err := url.Parse(s); err == nil && u.User != nil {
		c.rep.add(fault{rule: "engine-url-user", path: p, says: "holds a user or password", got: "a value that is not shown",
			want: "an address without them", hint: "give the engine's key by name: engine.engine_api_key_env"})
	}
}

func urlFault(s string) string {
	if s == "" {
		return "is empty"
	}
	if strings.ContainsFunc(s, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }) {
		return "holds a space or control character"
	}
	u, err := url.Parse(s)
	if err != nil {
		return "is no URL"
	}
	switch {
	case !strings.Contains(s, "://"):
		return "has no scheme"
	case u.Scheme != "http" && u.Scheme != "https":
		return "has the scheme " + quote(u.Scheme) + ", want http or https"
	case u.Hostname() == "":
		return "has no host"
	case u.RawQuery != "" || u.Fragment != "":
		return "holds a query or fragment"
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return "has the port " + quote(port) + ", want 1 to 65535"
		}
	}
	return ""
}

// sharedDevices checks the groups of engines on one GPU.
func (c checker) sharedDevices() {
	groups := map[string][]int{}
	var order []string
	for i, e := range c.f.Engines {
		if d := e.SharedDevice; d != nil {
			if groups[d.Group] == nil {
				order = append(order, d.Group)
			}
			groups[d.Group] = append(groups[d.Group], i)
		}
	}
	for _, g := range order {
		c.sharedGroup(g, groups[g])
	}
}

// shareSlack is the rounding that the reference allows in the sum of shares.
const shareSlack = 1e-12

func (c checker) sharedGroup(name string, members []int) {
	first := c.f.Engines[members[0]].SharedDevice
	if n := len(members); n < 2 || n > 8 {
		c.rep.add(fault{rule: "shared-group-size", path: engineField(members[0], "shared_device").add(key("group")),
			says: fmt.Sprintf("group %s has %d engines, want 2 to 8", quote(name), n)})
	}
	sum := 0.0
	for _, i := range members {
		d := c.f.Engines[i].SharedDevice
		p := engineField(i, "shared_device")
		if d.GPUUUID != first.GPUUUID {
			c.rep.add(fault{rule: "shared-group-device", path: p.add(key("gpu_uuid")), got: quote(d.GPUUUID), want: quote(first.GPUUUID),
				says: fmt.Sprintf("group %s is on %s (engines[%d]) and on %s", quote(name), quote(first.GPUUUID), members[0], quote(d.GPUUUID))})
		}
		if d.DeviceAllowance != first.DeviceAllowance {
			c.rep.add(fault{rule: "shared-group-device", path: p.add(key("device_allowance")), got: num(d.DeviceAllowance), want: num(first.DeviceAllowance)})
		}
		sum += d.GPUMemoryUtilization
	}
	if sum > first.DeviceAllowance+shareSlack {
		c.rep.add(fault{rule: "shared-group-sum", path: engineField(members[len(members)-1], "shared_device").add(key("gpu_memory_utilization")),
			got: num(sum), want: "at most " + num(first.DeviceAllowance),
			says: fmt.Sprintf("the shares of group %s add up to %s, want at most the device_allowance %s", quote(name), num(sum), num(first.DeviceAllowance))})
	}
}

func (c checker) contract() {
	k := c.f.EngineContract
	if k == nil {
		return
	}
	backend := c.f.Engine.Backend
	for _, name := range k.Unattested(backend) {
		c.fault("contract-unattested", "engine_contract."+name, backend+" does not attest this field; it stays unset", "remove it")
	}
	if backend == "vllm" && k.EnforceHandshakeCompat != nil && !*k.EnforceHandshakeCompat {
		c.fault("contract-handshake", "engine_contract.enforce_handshake_compat", "must be true: mixed caches would be read as they come", "")
	}
	if backend == "sglang" {
		for name, flag := range map[string]*bool{
			"cross_layers_blocks": k.CrossLayersBlocks, "hybrid_kv_cache_manager": k.HybridKVCacheManager, "enforce_handshake_compat": k.EnforceHandshakeCompat,
		} {
			if flag != nil && !*flag {
				c.fault("contract-false-flag", "engine_contract."+name, backend+" does not attest this flag; false counts as unset", "write null, or remove it")
			}
		}
	}
}

// roles compares floors, pins and opening roles.
func (c checker) roles() {
	k := c.f.Controller
	n := len(c.f.Engines)
	alone := n == 1 && k.MinPrefill == 1 && k.MinDecode == 1
	if k.MinPrefill+k.MinDecode > n && !alone {
		field, other := "controller.min_decode", "controller.min_prefill"
		if k.MinDecode == 1 {
			field, other = other, field
		}
		c.relation("floors", field, []string{other, "engines"}, fmt.Sprintf("min_prefill %d and min_decode %d are more than %d engines", k.MinPrefill, k.MinDecode, n), "")
		return
	}
	pinned := map[string]int{}
	prefill := 0
	for _, e := range c.f.Engines {
		if e.Pin {
			pinned[e.Role]++
		}
		if e.Role == fleet.RolePrefill {
			prefill++
		}
	}
	c.pins(pinned, n)
	if n > 1 && prefill == n && pinned[fleet.RolePrefill] == 0 {
		c.fault("roles-one-sided", "engines", "every engine starts as prefill; the decode floor is breached at once", "let one start as decode")
	}
}

func (c checker) pins(pinned map[string]int, n int) {
	if n < 2 {
		return
	}
	k := c.f.Controller
	for _, r := range []struct {
		role, other string
		floor       int
	}{{fleet.RolePrefill, fleet.RoleDecode, k.MinPrefill}, {fleet.RoleDecode, fleet.RolePrefill, k.MinDecode}} {
		free := n - pinned[r.other]
		switch {
		case free == 0 && c.f.Deploy != nil:
			c.fault("roles-impossible", "engines", "every engine is pinned to "+r.other+"; none may "+verb(r.role), "unpin one engine")
		case free < r.floor:
			c.fault("pins-breach-floor", "engines", fmt.Sprintf("%d engines may %s, but controller.min_%s is %d", free, verb(r.role), r.role, r.floor), "unpin an engine")
		}
	}
}

func verb(role string) string { return role }
