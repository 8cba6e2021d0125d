package control

import "math"

const (
	// mostLent is the largest share of its time that a decode engine is planned to spend on
	// prefills, looked at in lentSteps steps, or halved
	// lentTries times where it is about what is lost.
	mostLent  = 0.15
	lentSteps = 5
	lentTries = 3
	// filled is the part of their seats up to which decode engines are filled one after the other, as
	// package sched places requests. The time of those that stay empty is lent: of mostEmpty of the
	// engines at most, and bears of a prefill engine's work, since answers come to them as well.
	filled, mostEmpty, bears = 0.8, 0.4, 0.5
	emptyTries               = 5
	// Shares of their time that engines of each role are in work at most under the promise.
	// Prefills come in bursts and wait no longer than the promise for the first token.
	prefillWorks, decodeWorks = 0.9, 0.97
	// alike is the part of what a full queue of prompts refuses that is refused whatever its
	// length. Runs of the simulator on the Azure traces have 0.19 to 0.28.
	alike = 0.25
	// lossWeight is what all requests of a block are worth beside a load at the promise.
	lossWeight = 16
)

// split projects p prefill engines. The load of the busier role counts up to what is promised;
// what is lost beyond that counts as such, and so does what such a split lost beyond its projection.
func (f *forecast) split(p int) Score {
	s := f.project(p, f.blocks)
	x := f.excess.beyond(p)
	s.Loss += x
	s.Objective += Ratio(lossWeight * x)
	return s
}

// project is split for some of the blocks, as projected.
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
		pre, dec := f.lent(b, ps, ds)
		lost := f.lost(b, ps, ds)
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
// as much of the prefill as evens both out. The time that they lend is lost to decoding, and more
// than that: their batches must be smaller to keep the pace.
func (f *forecast) lent(b *block, ps, ds capacity) (pre, dec float64) {
	pre, dec = b.prefill/(ps.prefill*f.planned), b.decode/(ds.decode*f.planned)
	if pre <= dec {
		return pre, dec
	}
	spare := f.spare(b, 1, b.decode/ds.decode, ds.decode)
	for i := 1; i <= lentSteps; i++ {
		share := mostLent * float64(i) / lentSteps
		p, d := b.prefill/(ps.prefill*f.planned+share*ds.prefill), b.decode/(ds.decode*f.planned*f.kept[i])
		if d > p || share > spare {
			break
		}
		pre, dec = p, d
	}
	return pre, dec
}

// lost is the share of a block's requests that is refused when decode engines lend what they can.
func (f *forecast) lost(b *block, ps, ds capacity) float64 {
	room := prefillWorks * ps.prefill
	least, asked := b.lost(room, decodeWorks*ds.decode)
	if b.prefill <= room || asked >= decodeWorks*ds.decode {
		return least
	}
	lend := func(most float64, tries int, of func(share float64) (lost float64, fits bool)) {
		share, by := most, most
		for range tries {
			lost, fits := of(share)
			by /= 2
			if fits && lost < least {
				least = lost
				share += by
			} else {
				share -= by
			}
			if share > most {
				break
			}
		}
	}
	lend(mostLent, lentTries, func(share float64) (float64, bool) {
		can := decodeWorks * ds.decode * f.keeps(share)
		lost, asked := b.lost(room+share*ds.prefill, can)
		return lost, share <= f.spare(b, 1-lost, asked/can, ds.decode)
	})
	lend(mostEmpty, emptyTries, func(share float64) (float64, bool) {
		lost, asked := b.lost(room+float64(bears*share)*ds.prefill, decodeWorks*ds.decode)
		return lost, asked <= float64(filled*(1-share))*ds.decode
	})
	return least
}

// keeps is the part of its token rate that an engine keeps when it lends a share of its time.
func (f *forecast) keeps(share float64) float64 {
	at := math.Min(share/mostLent, 1) * lentSteps
	i := min(int(at), lentSteps-1)
	return f.kept[i] + (at-float64(i))*(f.kept[i+1]-f.kept[i])
}

// spare is the largest share of its time that a decode engine can lend to prefills of a block's
// mean length when it serves a part of the requests and decodes at a load, 1 = all that it can.
// A resident can bear a prefill of s seconds when its tokens came s seconds sooner than promised,
// which takes s/gain seconds from its first token on; so the engine has to wait until nobody came
// for that long, and then again: (e^(n·s/gain) - 1)/n seconds where n come each second at random.
func (f *forecast) spare(b *block, part, load, engines float64) float64 {
	if load >= 1 || b.requests == 0 || f.idle >= 1 {
		return 0
	}
	gain := (1 - f.idle) * (1 - load) / (1 - load*(1-f.idle))
	s := b.prefill / b.requests
	each := math.Max(1e-9, part*b.requests/engines)
	wait := each * s / gain
	if wait > 20 {
		return 0
	}
	return s / (math.Expm1(wait)/each + s)
}

// lost is the share of a block's requests that is refused. A full queue of prompts has room for
// short ones mostly, so that most of what is refused are the longest; a full batch refuses all
// alike.
func (b *block) lost(prefill, decode float64) (lost, asked float64) {
	if b.requests == 0 {
		return 0, 0
	}
	served := 0.0
	even := math.Min(1, prefill/math.Max(1e-9, b.prefill))
	for i := range b.n {
		if b.n[i] == 0 {
			continue
		}
		part := 1.0
		if b.pre[i] > prefill {
			part = math.Max(0, prefill/b.pre[i])
		}
		prefill -= b.pre[i] * part
		part += alike * (even - part)
		served += b.n[i] * part
		asked += b.dec[i] * part
	}
	if asked > decode {
		served *= decode / asked
	}
	return 1 - served/b.requests, asked
}
