package control

import (
	"encoding/json"
	"math"
)

// Ratio marshals infinity as null and rounds to six digits.
type Ratio float64

// MarshalJSON writes null for a ratio that is not finite.
func (r Ratio) MarshalJSON() ([]byte, error) {
	v := float64(r)
	if math.IsInf(v, 0) || math.IsNaN(v) {
		return []byte("null"), nil
	}
	return json.Marshal(math.Round(v*1e6) / 1e6)
}

// UnmarshalJSON reads null as infinity.
func (r *Ratio) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		*r = Ratio(math.Inf(1))
		return nil
	}
	return json.Unmarshal(b, (*float64)(r))
}

// Results of an evaluation.
const (
	Applied  = "applied"
	Held     = "held"
	Blocked  = "blocked"
	Advisory = "advisory"
)

// Who decided.
const (
	ByReactive      = "reactive"
	ByDecodeFloor   = "decode_floor"
	ByFloorRecovery = "floor_recovery"
)

// Rules that make a split eligible.
const (
	RuleBreach = "mixed_pressure" // the promise is projected to break
	RuleSteady = "steady_demand"  // both horizons agree that another split is better
	RuleFloor  = "floor"
)

// Decision records one evaluation: the splits that were looked at and what came of it.
// Prefill and Decode are the split that was chosen, the current one when held.
type Decision struct {
	At      float64 `json:"at"`
	Prefill int     `json:"prefill"`
	Decode  int     `json:"decode"`
	By      string  `json:"by"`
	Reason  string  `json:"reason"`
	Result  string  `json:"result"`
	Applied bool    `json:"applied"`

	CurrentPrefill int   `json:"current_prefill"`
	CurrentDecode  int   `json:"current_decode"`
	PrefillWork    Ratio `json:"prefill_work"`
	DecodeWork     Ratio `json:"decode_work"`
	Arrivals       int   `json:"arrivals"`
	Outputs        int   `json:"output_observations"`
	Complete       bool  `json:"demand_complete"`
	Horizon        Ratio `json:"demand_horizon_s"`
	SteadyPrefill  Ratio `json:"steady_prefill_work"`
	SteadyDecode   Ratio `json:"steady_decode_work"`

	TTFTRatio     Ratio   `json:"projected_ttft_ratio"`
	TPOTRatio     Ratio   `json:"projected_tpot_ratio"`
	Objective     Ratio   `json:"objective"`
	Delta         Ratio   `json:"objective_delta"` // gain over the current split
	Rule          string  `json:"eligibility_rule"`
	Confirmations int     `json:"confirmations"`
	Required      int     `json:"required_confirmations"`
	Engine        string  `json:"iid,omitempty"`
	Splits        []Score `json:"splits"`
}
