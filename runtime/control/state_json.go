package control

import (
	"encoding/json"
	"fmt"

	"github.com/narwhal-fleet/narwhal/runtime/model"
)

// written is a State as a journal keeps it, without rounding.
type written struct {
	Params  Params    `json:"params"`
	Started float64   `json:"started"`
	Open    bucket    `json:"open"`
	Closed  []*bucket `json:"closed,omitempty"`
	Past    []*bucket `json:"past,omitempty"`
	Outputs outputs   `json:"outputs"`
	Trial   trial     `json:"trial,omitzero"`
	Excess  excesses  `json:"excess,omitempty"`

	LastTick     float64    `json:"last_tick"`
	Ticked       bool       `json:"ticked,omitempty"`
	Live         int        `json:"live,omitempty"`
	LiveSince    float64    `json:"live_since,omitempty"`
	LastToDecode float64    `json:"last_to_decode"`
	LastMove     float64    `json:"last_move"`
	LastTo       model.Role `json:"last_to,omitempty"`
	Heading      int        `json:"heading,omitempty"`
	Rule         string     `json:"rule,omitempty"`
	Run          int        `json:"run,omitempty"`
}

// sparse is a bucket without the bands that nothing came in.
type sparse struct {
	From   float64         `json:"from"`
	All    moments         `json:"all,omitzero"`
	Band   map[int]moments `json:"band,omitempty"`
	Missed [2]float64      `json:"missed,omitzero"`
}

// MarshalJSON leaves out what is empty, which is most of it.
func (b bucket) MarshalJSON() ([]byte, error) {
	s := sparse{b.From, b.All, map[int]moments{}, b.Missed}
	for i, m := range b.Band {
		if m != (moments{}) {
			s.Band[i] = m
		}
	}
	return json.Marshal(s)
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (b *bucket) UnmarshalJSON(raw []byte) error {
	var s sparse
	if err := json.Unmarshal(raw, &s); err != nil {
		return err
	}
	*b = bucket{From: s.From, All: s.All, Missed: s.Missed}
	for i, m := range s.Band {
		if i < 0 || i >= bands {
			return fmt.Errorf("read controller state: band %d of %d", i, bands)
		}
		b.Band[i] = m
	}
	return nil
}

// MarshalJSON writes all that the controller remembers.
func (s State) MarshalJSON() ([]byte, error) {
	return json.Marshal(written{s.Params, s.Started, s.open, s.closed, s.past, s.outputs, s.trial, s.excess,
		s.lastTick, s.ticked, s.live, s.liveSince, s.lastToDecode, s.lastMove, s.lastTo, s.heading, s.rule, s.run})
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (s *State) UnmarshalJSON(b []byte) error {
	var w written
	if err := json.Unmarshal(b, &w); err != nil {
		return err
	}
	*s = State{w.Params, w.Started, w.Open, w.Closed, w.Past, w.Outputs, w.Trial, w.Excess,
		w.LastTick, w.Ticked, w.Live, w.LiveSince, w.LastToDecode, w.LastMove, w.LastTo, w.Heading, w.Rule, w.Run}
	return nil
}
