package profile

import "math"

// Curve is what one engine was measured to do. The zero value is no measurement.
type Curve struct {
	// Prefill of n tokens takes A·n² + B·n + C seconds, plus Split when n is longer
	// than BlockTokens and no multiple of it.
	A           float64 `json:"a,omitempty"`
	B           float64 `json:"b,omitempty"`
	C           float64 `json:"c,omitempty"`
	BlockTokens int     `json:"block_tokens,omitempty"`
	Split       float64 `json:"split,omitempty"`
	// PrefillMin is the shortest measured prompt; shorter ones cost as much. 0 = none.
	PrefillMin int `json:"prefill_min,omitempty"`
	PrefillMax int `json:"prefill_max,omitempty"`

	// A decode batch of r requests that hold k tokens yields a token each every
	// Slope·k + RequestSlope·r + Intercept seconds.
	Slope        float64 `json:"slope,omitempty"`
	RequestSlope float64 `json:"request_slope,omitempty"`
	Intercept    float64 `json:"intercept,omitempty"`
	// The measured box of decode batches.
	MinRequests int `json:"min_requests,omitempty"`
	MaxRequests int `json:"max_requests,omitempty"`
	MinKVTokens int `json:"min_kv_tokens,omitempty"`
	MaxKVTokens int `json:"max_kv_tokens,omitempty"`
	// KVCapacity is how many tokens the cache holds; 0 = unknown.
	KVCapacity int `json:"kv_capacity,omitempty"`
}

// Measured reports whether c holds a measurement.
func (c *Curve) Measured() bool { return c.MaxRequests > 0 && (c.C > 0 || c.B > 0 || c.A > 0) }

// Prefill returns the seconds that a cold prompt of n tokens takes alone.
func (c *Curve) Prefill(n int) float64 {
	m := max(n, c.PrefillMin)
	x := float64(m)
	t := c.A*x*x + c.B*x + c.C
	if c.BlockTokens > 0 && m > c.BlockTokens && m%c.BlockTokens != 0 {
		t += c.Split
	}
	return math.Max(0, t)
}

// Warm returns the seconds that a prompt of n tokens takes alone when the first c of them are in
// the engine's cache: T(n) − T(c) beside the constant part, at least what its tail takes alone
// and at most what all of it takes.
func (c *Curve) Warm(n, cached int) float64 {
	if cached <= 0 || n <= 0 {
		return c.Prefill(n)
	}
	cached = min(cached, n)
	alone := c.Prefill(n - cached)
	// A·n² − A·c² = A·u² + 2·A·c·u with a tail of u tokens; the step is the tail's.
	u := max(n-cached, c.PrefillMin)
	more := 2 * c.A * float64(cached) * float64(u)
	return math.Min(math.Max(alone, alone+more), math.Max(alone, c.Prefill(n)))
}

// Interval returns the seconds between tokens in a batch of r requests holding k tokens.
func (c *Curve) Interval(r, k int) float64 {
	return c.interval(float64(r), float64(k))
}

func (c *Curve) interval(r, k float64) float64 {
	return max(0, c.Slope*k+c.RequestSlope*r+c.Intercept)
}

// TokenLimit returns the most KV tokens that the engine may hold at once.
func (c *Curve) TokenLimit() int {
	if c.KVCapacity > 0 && c.KVCapacity < c.MaxKVTokens {
		return c.KVCapacity
	}
	return c.MaxKVTokens
}

// RequestLimit returns how many requests of x tokens each fit the measured box.
func (c *Curve) RequestLimit(x float64) int {
	if x <= 0 || c.MaxRequests <= 0 {
		return 0
	}
	byTokens := max(1, int(float64(c.TokenLimit())/x))
	return max(1, min(c.MaxRequests, byTokens))
}

// Batch returns the largest batch g of requests of x tokens whose interval stays
// within tpot, and that interval. It returns 0 when even one request does not fit.
func (c *Curve) Batch(x, tpot float64) (g int, interval float64) {
	limit := c.RequestLimit(x)
	perRequest := c.RequestSlope + c.Slope*x
	g = limit
	if perRequest > 0 {
		room := math.Floor((tpot - c.Intercept) / perRequest * (1 + 1e-12))
		g = int(math.Min(float64(limit), math.Max(0, room)))
	}
	if g < 1 {
		return 0, 0
	}
	j := c.interval(float64(g), float64(g)*x)
	if j > tpot*(1+1e-9) {
		return 0, 0
	}
	return g, j
}

// Covers reports whether a batch of r requests holding k tokens was measured.
func (c *Curve) Covers(r, k int) bool { return r <= c.MaxRequests && k <= c.MaxKVTokens }
