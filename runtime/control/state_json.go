package control

import (
	"encoding/json"

	"github.com/narwhal-fleet/narwhal/runtime/model"
)

// written is a State as a journal keeps it, without rounding.
type written struct {
	Params  Params   `json:"params"`
	Started float64  `json:"started"`
	Open    bucket   `json:"open"`
	Closed  []bucket `json:"closed,omitempty"`
	Outputs outputs  `json:"outputs"`
	Unknown int      `json:"unknown,omitempty"`

	LastTick     float64    `json:"last_tick"`
	Ticked       bool       `json:"ticked,omitempty"`
	LastToDecode float64    `json:"last_to_decode"`
	LastMove     float64    `json:"last_move"`
	LastTo       model.Role `json:"last_to,omitempty"`
	Heading      int        `json:"heading,omitempty"`
	Rule         string     `json:"rule,omitempty"`
	Run          int        `json:"run,omitempty"`
}

// MarshalJSON writes all that the controller remembers.
func (s State) MarshalJSON() ([]byte, error) {
	return json.Marshal(written{s.Params, s.Started, s.open, s.closed, s.outputs, s.unknown,
		s.lastTick, s.ticked, s.lastToDecode, s.lastMove, s.lastTo, s.heading, s.rule, s.run})
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (s *State) UnmarshalJSON(b []byte) error {
	var w written
	if err := json.Unmarshal(b, &w); err != nil {
		return err
	}
	*s = State{w.Params, w.Started, w.Open, w.Closed, w.Outputs, w.Unknown,
		w.LastTick, w.Ticked, w.LastToDecode, w.LastMove, w.LastTo, w.Heading, w.Rule, w.Run}
	return nil
}
