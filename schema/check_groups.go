package schema

import (
	"fmt"
)

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
