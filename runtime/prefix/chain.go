package prefix

import (
	"hash/maphash"
	"math/bits"
)

// Chunk is how many bytes of a prompt one hash stands for. A last part that is shorter has none.
const Chunk = 512

// MaxChunks of one prompt are hashed: its first mebibyte.
const MaxChunks = 2048

// Chain has a hash for each leading chunk of a prompt, which also depends on all before it.
type Chain []uint64

// Hasher makes chains. Those of two hashers have nothing in common, and nobody outside the
// process can make prompts whose chains collide. The zero value is not usable.
type Hasher struct{ seed maphash.Seed }

// NewHasher draws a new one.
func NewHasher() Hasher { return Hasher{maphash.MakeSeed()} }

// Chain hashes the head of a prompt. apart is what keeps caches of equal prompts apart, in an
// order that the caller keeps; an absent part is nil. It holds on to neither.
func (h Hasher) Chain(prompt []byte, apart ...[]byte) Chain {
	n := min(len(prompt)/Chunk, MaxChunks)
	if n == 0 {
		return nil
	}
	x := uint64(len(apart))
	for _, p := range apart {
		x = mix(x, maphash.Bytes(h.seed, p))
	}
	c := make(Chain, n)
	for i := range c {
		x = mix(x, maphash.Bytes(h.seed, prompt[i*Chunk:(i+1)*Chunk]))
		c[i] = x
	}
	return c
}

// mix folds the next hash into a chain; the order of both counts.
func mix(before, next uint64) uint64 {
	hi, lo := bits.Mul64(before^0x9e3779b97f4a7c15, next|1)
	return hi ^ lo ^ bits.RotateLeft64(next, 32) + before
}
