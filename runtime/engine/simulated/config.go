// Package simulated is an engine without a model: an HTTP server of the vLLM or the SGLang
// dialect over the scheduler of package core.
//
// It promises to be as strict as the real engine: the same refusals, the same deaths, and a
// text that is right only when the KV it was made from is right. Two of its engines hand KV to
// each other over a side channel of their own. It refuses nothing that the real engine
// accepts, and it never helps a caller that made a mistake.
//
// The side channel is HTTP between simulated engines only; it does not speak NIXL or Mooncake.
//
// Latencies, in seconds: a step that computes prompt tokens costs
// a + Σ(b·n + c·(to² − from²)) over the pieces of at most max_batched_tokens, and one that
// advances decoding sequences d + e·running + f·resident tokens; a step that does both costs
// the sum. A KV read costs latency + 8·bytes/(rate·1e9), the first contact of a pair a
// handshake besides.
package simulated

import (
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/runtime/engine/simulated/core"
)

// Config is one engine. Fields that are 0 take the defaults of core.Config.
type Config struct {
	fleet.Simulated
	// Dialect is vllm or sglang; "" = vllm.
	Dialect string `json:"dialect"`
	// Model is the served name; engines with the same name answer alike.
	Model string `json:"model"`
	// Root is the model path that /v1/models shows and peers compare; "" = Model.
	Root string `json:"root"`
	// Listen is the HTTP address; "" = 127.0.0.1:0.
	Listen string `json:"listen"`
	// SideChannel is the address of the side channel, which is SGLang's bootstrap server; ""
	// runs without a connector, port 0 takes a free one.
	SideChannel string `json:"side_channel"`
	// AnnounceHost is the host written into handoffs; "" = the side channel's.
	AnnounceHost string `json:"announce_host"`
	// APIKey is asked of /v1 routes; empty asks nothing. It has no place in a file.
	APIKey fleet.Secret `json:"-"`
	// ShutdownTimeout lets running requests end after SIGTERM; 0 drops them in silence.
	ShutdownTimeout fleet.Duration `json:"shutdown_timeout"`
	// Recompute answers a failed KV read with a local prefill instead of an error.
	Recompute bool `json:"recompute"`
	// MaxQueued refuses requests beyond this many in the queue; 0 = no limit.
	MaxQueued int `json:"max_num_queued_reqs"`
	// HandshakeLimit bounds the first contact of a pair; 0 = 5 s.
	HandshakeLimit fleet.Duration `json:"handshake_limit"`
	// RequestIDHeaders echoes X-Request-Id.
	RequestIDHeaders bool `json:"request_id_headers"`
	// DevMode opens /pause, /resume, /is_paused and /reset_prefix_cache.
	DevMode bool `json:"dev_mode"`
	// SGLang is read with that dialect only.
	SGLang
}

func (c Config) core() core.Config {
	return core.Config{Simulated: c.Simulated, Model: c.Model}.WithDefaults()
}

func (c Config) withDefaults() (Config, error) {
	c, err := c.dialectDefaults()
	if err != nil {
		return c, err
	}
	cc := c.core()
	if err := cc.Validate(); err != nil {
		return c, err
	}
	c.Simulated = cc.Simulated
	if c.Root == "" {
		c.Root = c.Model
	}
	if c.Listen == "" {
		c.Listen = "127.0.0.1:0"
	}
	if c.HandshakeLimit == 0 {
		c.HandshakeLimit = fleet.Duration(5 * time.Second)
	}
	if c.ShutdownTimeout < 0 || c.HandshakeLimit < 0 || c.MaxQueued < 0 {
		return c, errors.New("check simulated engine: limits must not be negative")
	}
	if c.SideChannel != "" && c.AnnounceHost == "" {
		host, _, err := net.SplitHostPort(c.SideChannel)
		if err != nil {
			return c, fmt.Errorf("check simulated engine: side channel: %w", err)
		}
		c.AnnounceHost = host
	}
	return c, nil
}
