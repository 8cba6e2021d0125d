package simulate

import "math"

// mix starts one iteration of an engine that prefills in chunks: a decode step of the batch, if
// there is one, and a piece of the first prompt beside it. The engine does one thing at a time:
// the iteration takes the sum of both.
func (e *engine) mix(now float64) {
	j := e.prefills.head()
	first := j.done == 0
	if e.cache != nil && !j.begun {
		e.lookUp(j)
		first = true
	}
	e.piece = min(e.chunk, j.input-j.done)
	took := e.model.piece(j.done, e.piece, first, e.slow)
	if e.piece == 0 { // an empty prompt
		e.piece = -1
	}
	if len(e.batch) == 0 {
		e.busy, e.next = prefilling, now+took
		return
	}
	e.busy, e.count = running, 1
	e.run = stretch{from: now, first: e.model.step(len(e.batch), e.tokens, e.slow) + took}
	e.next = e.run.end(1)
}

// prefilled ends the piece in work, or the whole prompt, and returns the request if that was
// the last of it.
func (e *engine) prefilled(now float64) *job {
	j := e.prefills.head()
	if e.chunk > 0 {
		j.done += max(0, e.piece)
		e.piece = 0
		if j.done < j.input {
			return nil
		}
	}
	e.prefills.pop()
	j.prefilled = now
	return j
}

// piece is what an engine needs for n tokens of a prompt after those that are done; the pieces
// of a prompt add up to what it takes whole.
func (m *Model) piece(done, n int, first bool, slow float64) float64 {
	from, to := float64(done), float64(done+n)
	t := float64(m.Prefill.A*float64(float64(to*to)-float64(from*from))) + float64(m.Prefill.B*float64(n))
	if first {
		t += m.Prefill.C
	}
	return math.Max(0, float64(slow*t))
}
