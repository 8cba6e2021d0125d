package simulate

import (
	"errors"
	"fmt"
	"math"

	"github.com/narwhal-fleet/narwhal/runtime/profile"
)

// Model is one kind of engine and how many there are. Times are seconds.
type Model struct {
	Engines        int      `json:"engines"`
	PrefillAtStart int      `json:"prefill_at_start"`
	Prefill        Prefill  `json:"prefill"`
	Decode         Decode   `json:"decode"`
	MaxRunning     int      `json:"max_running"` // requests of a decode batch
	KVTokens       int      `json:"kv_tokens"`   // Σ(input + output) of a decode batch
	Transfer       Transfer `json:"transfer"`
}

// Prefill of n tokens takes A·n² + B·n + C.
type Prefill struct {
	A float64 `json:"a"`
	B float64 `json:"b"`
	C float64 `json:"c"`
}

// Decode of one token for each of r requests that hold k tokens takes C + R·r + M·k.
type Decode struct {
	C float64 `json:"c"`
	R float64 `json:"r"`
	M float64 `json:"m"`
}

// Transfer of n tokens takes Base + PerToken·n.
type Transfer struct {
	Base     float64 `json:"base"`
	PerToken float64 `json:"per_token"`
}

// maxEngines bounds a fleet: all its static splits are tried.
const maxEngines = 256

func (m Model) check() error {
	var errs []error
	if m.Engines < 2 || m.Engines > maxEngines {
		errs = append(errs, fmt.Errorf("check model: engines is %d, want 2 to %d", m.Engines, maxEngines))
	}
	if m.PrefillAtStart < 1 || m.PrefillAtStart >= m.Engines {
		errs = append(errs, fmt.Errorf("check model: prefill_at_start is %d, want 1 to %d", m.PrefillAtStart, m.Engines-1))
	}
	if m.MaxRunning < 1 || m.KVTokens < 1 {
		errs = append(errs, errors.New("check model: max_running and kv_tokens must be positive"))
	}
	for _, f := range []struct {
		name  string
		value float64
	}{{"prefill.a", m.Prefill.A}, {"prefill.b", m.Prefill.B}, {"prefill.c", m.Prefill.C}, {"decode.c", m.Decode.C},
		{"decode.r", m.Decode.R}, {"decode.m", m.Decode.M}, {"transfer.base", m.Transfer.Base}, {"transfer.per_token", m.Transfer.PerToken}} {
		if !(f.value >= 0) || math.IsInf(f.value, 0) {
			errs = append(errs, fmt.Errorf("check model: %s is %v, want a number of at least 0", f.name, f.value))
		}
	}
	if m.Prefill.A+m.Prefill.B+m.Prefill.C <= 0 || m.Decode.C+m.Decode.R <= 0 {
		errs = append(errs, errors.New("check model: prefill and decode must take time"))
	}
	return errors.Join(errs...)
}

// prefill, step and transfer are what an engine needs that is slow times slower than its
// curve. The transfer is the network's and does not change.
func (m *Model) prefill(n int, slow float64) float64 {
	x := float64(n)
	return float64(slow * (float64(float64(m.Prefill.A*x)*x) + float64(m.Prefill.B*x) + m.Prefill.C))
}

func (m *Model) step(requests, tokens int, slow float64) float64 {
	return float64(slow * (m.Decode.C + float64(m.Decode.R*float64(requests)) + float64(m.Decode.M*float64(tokens))))
}

func (m *Model) transfer(n int) float64 { return m.Transfer.Base + m.Transfer.PerToken*float64(n) }

// curve is the engine's profile: exact, but for slowness that no profile knows of.
func (m *Model) curve() profile.Curve {
	return profile.Curve{A: m.Prefill.A, B: m.Prefill.B, C: m.Prefill.C,
		Slope: m.Decode.M, RequestSlope: m.Decode.R, Intercept: m.Decode.C,
		MinRequests: 1, MaxRequests: m.MaxRunning, MinKVTokens: 1, MaxKVTokens: m.KVTokens, KVCapacity: m.KVTokens}
}
