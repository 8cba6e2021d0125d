// Package profile holds the latency curves of engines: how long a prefill of n
// tokens takes and how far apart the tokens of a decode batch are.
//
// It promises pure arithmetic, fits that are reproducible from their samples, and
// the narwhal.profiles version 1 store, read and written strictly. It refuses to
// extrapolate a decode batch beyond what was measured without saying so (Covers),
// and to read a store of another version or with unknown fields.
//
// Times are seconds everywhere, lengths are tokens.
package profile
