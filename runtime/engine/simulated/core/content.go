package core

import "github.com/narwhal-fleet/narwhal/runtime/engine/simulated/token"

// The answer is a chain: the state after a prompt is a fold over the ids found in its KV, each
// token is a function of the state, and is folded in turn. So a wrong block changes all that
// follows, and a prompt extended by its own answer goes on as the answer did.

const absent = -1 // a slot of a block that was never written

func fold(h uint64, id int32) uint64 {
	h ^= uint64(uint32(id)) + 0x9e3779b97f4a7c15
	h *= 0xbf58476d1ce4e5b9
	return h ^ (h >> 29)
}

func root(model string) uint64 {
	h := uint64(0x6e617277)
	for i := range len(model) {
		h = fold(h, int32(model[i]))
	}
	return h
}

// draw is the state's value for one choice of one sampling seed.
func draw(state, seed uint64, choice int) uint64 {
	h := state ^ (seed * 0x94d049bb133111eb) ^ uint64(choice)*0xd6e8feb86659fd93
	h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9
	h = (h ^ (h >> 27)) * 0x94d049bb133111eb
	return h ^ (h >> 31)
}

// next is the id that a sequence samples from its state.
func (c *Core) next(s *Seq) int32 {
	v := draw(s.state, s.Seed, s.Choice)
	if s.MayStop && len(s.Out) >= s.MinTokens && (v>>40)%uint64(c.cfg.EOSOneIn) == 0 {
		return token.EOS
	}
	if c.Wide && v>>56&3 == 0 {
		return token.Symbol(v)
	}
	return token.Word(v)
}
