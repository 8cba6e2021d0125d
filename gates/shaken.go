package gates

// shaken is the first gate that no longer holds because a later one, the i-th, interrupted what
// it rests on, i for none: a drill of gate F replaces a process that gates C and E looked at.
func (r *Runner) shaken(i int, res GateOutcome) int {
	if !res.disrupted {
		return i
	}
	for back, g := range r.Gates[:i] {
		if len(r.needs(g)) > 0 {
			return back
		}
	}
	return i
}

// put keeps one outcome a gate, the last.
func (o *Outcome) put(res GateOutcome) {
	for i := range o.Gates {
		if was := o.Gates[i]; was.Info.Letter == res.Info.Letter {
			if len(res.Because) == 0 {
				res.Because, res.Reused = was.Because, was.Reused
			}
			o.Gates[i] = res
			return
		}
	}
	o.Gates = append(o.Gates, res)
}
