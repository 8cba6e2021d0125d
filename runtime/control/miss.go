package control

import "github.com/narwhal-fleet/narwhal/runtime/model"

// Miss is one arrival that was refused, or served later than promised, for want of engines of a
// role. It is counted beside its Arrival.
type Miss struct {
	At   float64
	Lack model.Role // "" counts nothing
}

func (Miss) event() {}

// Lacked is the role that a refused request lacked engines of; "" when more of none would help.
func Lacked(why model.Reason) model.Role {
	switch why {
	case model.ReasonQueue:
		return model.Prefill
	case model.ReasonTPOT, model.ReasonSlotWait, model.ReasonKVCapacity:
		return model.Decode
	}
	return ""
}

// Late is the role that a whole answer lacked engines of: its prefill ended and its first token came
// so many seconds after the arrival, the others with a mean interval; "" when the promise was kept.
func Late(par model.Params, prefilled, first, interval float64) model.Role {
	switch {
	case prefilled > par.TTFT:
		return model.Prefill
	case first > par.TTFT || interval > par.TPOT:
		return model.Decode
	}
	return ""
}

func (s State) miss(m Miss) State {
	if m.Lack == "" {
		return s
	}
	s = s.roll(m.At)
	s.open.Missed[lacks(m.Lack)]++
	return s
}

func lacks(role model.Role) int {
	if role == model.Prefill {
		return 0
	}
	return 1
}

// missed counts the misses of so many seconds by the role that was lacking, prefill first. Only
// what is in the window is known.
func (s *State) missed(now, span float64) (n [2]float64) {
	n = s.open.Missed
	w := s.width()
	for i := len(s.closed) - 1; i >= 0 && s.closed[i].From+w > now-span; i-- {
		n[0], n[1] = n[0]+s.closed[i].Missed[0], n[1]+s.closed[i].Missed[1]
	}
	return n
}
