package bench

import (
	"encoding/json"
	"errors"
	"fmt"
)

// parseState reads the process's run and what requests it holds, by the state's names.
func parseState(b []byte) (run string, holds map[string]int, err error) {
	var s struct {
		Schema    string `json:"schema"`
		Run       string `json:"journal_run"`
		Admission struct {
			Inflight int `json:"inflight"`
			Queued   int `json:"queued"`
			Prefill  int `json:"waiting_prefill"`
			Decode   int `json:"waiting_decode"`
		} `json:"admission"`
		Serving struct {
			Retained int `json:"http_retained"`
		} `json:"serving"`
		Resident map[string]struct {
			Prefill int `json:"prefill"`
			Decode  int `json:"decode"`
		} `json:"resident"`
	}
	if err := json.Unmarshal(b, &s); err != nil {
		return "", nil, fmt.Errorf("read state: %w", err)
	}
	if s.Schema != "narwhal.state" || s.Run == "" {
		return "", nil, errors.New("read state: not a narwhal.state document")
	}
	resident := 0
	for _, r := range s.Resident {
		resident = most(resident + most(r.Prefill) + most(r.Decode))
	}
	holds = map[string]int{}
	for name, n := range map[string]int{"inflight": s.Admission.Inflight, "queued": s.Admission.Queued, "waiting_prefill": s.Admission.Prefill,
		"waiting_decode": s.Admission.Decode, "http_retained": s.Serving.Retained, "resident": resident} {
		if n = most(n); n > 0 {
			holds[name] = n
		}
	}
	return s.Run, holds, nil
}

// most keeps a foreign count within what sums up.
func most(n int) int { return min(max(0, n), 1<<30) }

// busy is how many requests are there at least: the counts overlap.
func busy(holds map[string]int) (n int) {
	for _, v := range holds {
		n = max(n, v)
	}
	return n
}
