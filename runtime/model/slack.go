package model

import "math"

// Slack is how long an engine may stand still before one of its residents breaks its promise:
// the least of what each can bear. Begin with NewSlack; times are seconds.
type Slack struct {
	free, gap, pace float64
	params          *Params
	least           float64
}

// NewSlack begins with an engine that is free of prefill work from a moment on and whose batch
// yields a token each gap seconds. What residents have yet to make is taken to come at the
// promised pace, since more may be admitted until the batch is that slow: only time that a
// resident has gained so far can be spent.
func NewSlack(free, gap float64, p *Params) Slack {
	return Slack{free: free, gap: gap, pace: math.Max(gap, p.TPOT), params: p, least: math.Inf(1)}
}

// Decoding counts in a resident that had its first token at a moment and has so many of its
// tokens left to make.
func (s *Slack) Decoding(first float64, output, left int) {
	s.least = min(s.least, first+float64(float64(output-1)*s.params.TPOT)-(s.free+float64(float64(left)*s.pace)))
}

// Waiting counts in a resident without a token, whose KV is here from a moment on. Until then the
// engine may stand still for its sake; one that comes too late is not to come later still.
func (s *Slack) Waiting(arrived, ready float64) {
	s.least = min(s.least, max(arrived+s.params.TTFT-s.gap, ready)-s.free)
}

// Seconds is the slack; infinite without residents, negative when a promise is broken already.
func (s *Slack) Seconds() float64 { return s.least }
