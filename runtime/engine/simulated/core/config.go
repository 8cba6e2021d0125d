// Package core is the simulated engine without its wires: blocks, prefix cache, scheduler,
// latency model, leases and the rule that makes an answer depend on the KV actually read.
//
// It promises that every change of state comes from a call with the time passed in: it starts
// no goroutine, reads no clock and, between calls, uses no CPU. It refuses locking: one owner
// calls it at a time.
package core

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
)

// Config is the fleet's model of an engine and the name that its text depends on.
type Config struct {
	fleet.Simulated
	// Model is mixed into every answer: engines with the same name answer alike.
	Model string
	// EOSOneIn ends an answer without a token limit with probability 1/EOSOneIn a token; 0 = 128.
	EOSOneIn int
}

// WithDefaults fills structural fields that are 0. Latencies of 0 stay 0.
func (c Config) WithDefaults() Config {
	def := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	def(&c.BlockSize, 16)
	def(&c.MaxModelLen, 4096)
	def(&c.Blocks, 4*((c.MaxModelLen+c.BlockSize-1)/c.BlockSize)+1)
	def(&c.MaxNumSeqs, 64)
	def(&c.MaxBatched, 2048)
	def(&c.Layers, 2)
	def(&c.KVHeads, 2)
	def(&c.HeadSize, 32)
	def(&c.ElementBytes, 2)
	def(&c.EOSOneIn, 128)
	if c.LeaseS == 0 {
		c.LeaseS = 30
	}
	if c.EngineVersion == "" {
		c.EngineVersion = "0.32.0"
	}
	return c
}

// Validate refuses a configuration that cannot serve its own context length.
func (c Config) Validate() error {
	switch {
	case c.Model == "":
		return errors.New("check simulated engine: model has no name")
	case c.BlockSize < 1 || c.MaxModelLen < 2 || c.MaxNumSeqs < 1 || c.MaxBatched < 1:
		return errors.New("check simulated engine: block_size, max_model_len, max_num_seqs and max_batched_tokens must be positive")
	case c.Jitter < 0 || c.Jitter > 0.5:
		return errors.New("check simulated engine: jitter must be between 0 and 0.5")
	}
	for _, v := range []float64{c.PrefillA, c.PrefillB, c.PrefillC, c.DecodeD, c.DecodeE, c.DecodeF,
		c.HandshakeS, c.TransferS, c.TransferGbps, c.LeaseS, c.StartS} {
		if v < 0 || math.IsNaN(v) || math.IsInf(v, 0) {
			return errors.New("check simulated engine: times and rates must be finite and not negative")
		}
	}
	if need := (c.MaxModelLen+c.BlockSize-1)/c.BlockSize + 1; c.Blocks < need {
		return fmt.Errorf("check simulated engine: blocks is %d, max_model_len needs %d", c.Blocks, need)
	}
	return nil
}

// BytesPerBlock is 2 × layers × KV heads × head size × element bytes × block size.
func (c Config) BytesPerBlock() int64 {
	return 2 * int64(c.Layers) * int64(c.KVHeads) * int64(c.HeadSize) * int64(c.ElementBytes) * int64(c.BlockSize)
}

// Lease is how long a handoff stays pinned.
func (c Config) Lease() time.Duration { return Seconds(c.LeaseS) }

// ReadTime is the length of a KV read: latency + bytes / rate. A rate of 0 is unlimited.
func (c Config) ReadTime(bytes int64) time.Duration {
	s := c.TransferS
	if c.TransferGbps > 0 {
		s += 8 * float64(bytes) / (c.TransferGbps * 1e9)
	}
	return Seconds(s)
}

// Seconds converts a float of seconds.
func Seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// stepTime is the length of one step that advances the prompt parts and, with them, all
// decoding sequences. Both halves occupy the device, so they add up.
func (c Config) stepTime(parts []part, decoding, resident int, slow float64, rng *rand.Rand) time.Duration {
	var s float64
	if len(parts) > 0 {
		s = c.PrefillA
		for _, p := range parts {
			from, to := float64(p.from), float64(p.to)
			s += c.PrefillB*(to-from) + c.PrefillC*(to*to-from*from)
		}
	}
	if decoding > 0 {
		s += c.DecodeD + c.DecodeE*float64(decoding) + c.DecodeF*float64(resident)
	}
	if c.Jitter > 0 {
		s *= 1 + c.Jitter*(2*rng.Float64()-1)
	}
	if slow > 0 {
		s *= slow
	}
	return Seconds(s)
}
