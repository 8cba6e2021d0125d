package simulated

import (
	"errors"
	"fmt"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/runtime/engine"
)

// Dialects of Config.
const (
	dialectVLLM   = "vllm"
	dialectSGLang = "sglang"
)

// SGLang is what only that dialect has.
type SGLang struct {
	// Role of the process at its start: prefill, decode or null; "" = null, which serves whole
	// requests and ignores rooms.
	Role string `json:"disaggregation_mode"`
	// RoleSwitch opens /pd_role_switch.
	RoleSwitch bool `json:"enable_pd_role_switch"`
	// RendezvousTimeout is how long a leg waits for the other one, at each of the two points
	// where it does; 0 = 300 s.
	RendezvousTimeout fleet.Duration `json:"rendezvous_timeout"`
	// HeartbeatInterval lies between two looks at a prefilling process whose KV is awaited; two
	// misses in a row are its loss. 0 = 5 s.
	HeartbeatInterval fleet.Duration `json:"heartbeat_interval"`
	// Checksum compares the KV received with the KV sent and fails what differs.
	Checksum bool `json:"enable_kv_checksum"`
}

const (
	defaultRendezvous = 300 * time.Second
	defaultHeartbeat  = 5 * time.Second
	defaultBootstrap  = 8998 // the port of a request that names none
)

// pairing is the SGLang half of a server. Guarded by Server.mu.
type pairing struct {
	role  string
	epoch int // counts the entries into the prefilling role
	unfit bool
	rooms map[uint64]*room
	// known are the prefilling processes that this one has met since it took its role.
	known map[string]contact

	failedBootstraps, failedTransfers, unscheduled int64
}

func (s *Server) sgl() bool { return s.cfg.Dialect == dialectSGLang }

// dialectDefaults fills and checks what the dialect brings with it.
func (c Config) dialectDefaults() (Config, error) {
	switch c.Dialect {
	case "", dialectVLLM:
		c.Dialect = dialectVLLM
		return c, nil
	case dialectSGLang:
	default:
		return c, fmt.Errorf("check simulated engine: dialect %q is none of vllm, sglang", c.Dialect)
	}
	if c.EngineVersion == "" {
		c.EngineVersion = "0.5.23"
	}
	if c.RendezvousTimeout == 0 {
		c.RendezvousTimeout = fleet.Duration(defaultRendezvous)
	}
	if c.HeartbeatInterval == 0 {
		c.HeartbeatInterval = fleet.Duration(defaultHeartbeat)
	}
	// There are no leases: the waits for the other leg end a pin first.
	c.LeaseS = 4*c.RendezvousTimeout.D().Seconds() + 60
	switch c.Role {
	case "":
		c.Role = engine.RoleNone
	case engine.RoleNone, engine.RoleDecode, engine.RolePrefill:
	default:
		return c, fmt.Errorf("check simulated engine: role %q is none of prefill, decode, null", c.Role)
	}
	if c.SideChannel == "" && (c.Role == engine.RolePrefill || c.RoleSwitch) {
		return c, errors.New("check simulated engine: a prefilling role needs a side channel")
	}
	if c.RendezvousTimeout < 0 || c.HeartbeatInterval < 0 {
		return c, errors.New("check simulated engine: limits must not be negative")
	}
	return c, nil
}

// pairRole is the live role, "" where the dialect has none.
func (s *Server) pairRole() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pair.role
}
