package control

import "math"

const (
	// mostLent is the largest share of its time that a decode engine is planned to spend on
	// prefills. Their residents' promises limit it, which differ from one moment to the next.
	mostLent  = 0.1
	lentSteps = 10
	// free is the part of its token rate that an engine must keep to lend while decoding is
	// asked for more than it can do: then batches fill up until nobody has time to spare.
	free = 0.97
	// Shares of their time that engines of each role are in work at most under the promise.
	// Prefills come in bursts and wait no longer than the promise for the first token.
	prefillWorks, decodeWorks = 0.9, 1.0
	// lossWeight is what all requests of a block are worth beside a load at the promise.
	lossWeight = 16
)

// split projects p prefill engines. The load of the busier role counts up to what is promised;
// what is lost beyond that counts as such.
func (f *forecast) split(p int) Score { return f.project(p, f.blocks) }

// project is split for some of the blocks.
func (f *forecast) project(p int, blocks []block) Score {
	d := f.p + f.d - p
	s := Score{Prefill: p, Decode: d, TTFT: Ratio(math.Inf(1)), TPOT: Ratio(math.Inf(1)), Objective: Ratio(math.Inf(1)), Loss: 1}
	if p < 1 || d < 1 {
		return s
	}
	ps, ds := f.with(p)
	s.TTFT, s.TPOT, s.Objective, s.Loss = 0, 0, 0, 0
	for i := range blocks {
		b := &blocks[i]
		pre, dec, room := f.lent(b, ps, ds)
		lost := b.lost(room, decodeWorks*ds.decode)
		s.TTFT += Ratio(b.weight * pre)
		s.TPOT += Ratio(b.weight * dec)
		s.Loss += Ratio(b.weight * lost)
		s.Objective += Ratio(b.weight * (math.Min(1, math.Max(pre, dec)) + lossWeight*lost))
	}
	return s
}

// with is what the engines of each role can do when p of them prefill.
func (f *forecast) with(p int) (ps, ds capacity) {
	ps, ds = f.now[0], f.now[1]
	k, who := float64(p-f.p), f.next[1]
	if p < f.p {
		who = f.next[0]
	}
	ps.prefill = math.Max(1e-6, ps.prefill+k*who.prefill)
	ds.decode = math.Max(1e-6, ds.decode-k*who.decode)
	ds.prefill = math.Max(0, ds.prefill-k*who.prefill)
	return ps, ds
}

// lent projects a block as shares of what each role is planned for, when decode engines take
// as much of the prefill as evens both out, and the prefill that is done at most. The time that
// they lend is lost to decoding, and more than that: their batches must be smaller to keep the
// pace.
func (f *forecast) lent(b *block, ps, ds capacity) (pre, dec, room float64) {
	pre, dec, room = b.prefill/(ps.prefill*f.planned), b.decode/(ds.decode*f.planned), prefillWorks*ps.prefill
	for i := 1; i <= lentSteps && pre > dec && f.kept[i] > 0; i++ {
		lent := mostLent * float64(i) / lentSteps * ds.prefill
		p, d := b.prefill/(ps.prefill*f.planned+lent), b.decode/(ds.decode*f.planned*f.kept[i])
		if d > p || d > 1 && f.kept[i] < free {
			break
		}
		pre, dec, room = p, d, prefillWorks*ps.prefill+lent
	}
	return pre, dec, room
}

// lost is the share of a block's requests that is refused. A full queue of prompts has room for
// short ones only, so the longest are refused first; a full batch refuses all alike.
func (b *block) lost(prefill, decode float64) float64 {
	if b.requests == 0 {
		return 0
	}
	served, asked := 0.0, 0.0
	for i := range b.n {
		if b.n[i] == 0 {
			continue
		}
		part := 1.0
		if b.pre[i] > prefill {
			part = math.Max(0, prefill/b.pre[i])
		}
		prefill -= b.pre[i] * part
		served += b.n[i] * part
		asked += b.dec[i] * part
	}
	if asked > decode {
		served *= decode / asked
	}
	return 1 - served/b.requests
}
