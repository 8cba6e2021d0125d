package engine

// State is what a scrape says about an engine. Counters are since the process start.
type State struct {
	Running int `json:"running"`
	// Waiting counts queued requests, those waiting for remote KV included.
	Waiting int `json:"waiting"`
	// Deferred counts requests that wait for remote KV.
	Deferred int `json:"deferred"`
	// Usage of the KV cache, 0 … 1, pinned handoffs included.
	Usage float64 `json:"kv_usage"`
	// ProcessStart in seconds since the epoch.
	ProcessStart float64 `json:"process_start"`
	// Awake is false while the engine sleeps.
	Awake bool `json:"awake"`

	GenerationTokens float64 `json:"generation_tokens"`
	PromptTokens     float64 `json:"prompt_tokens"`
	Iterations       float64 `json:"iterations"`
	Preemptions      float64 `json:"preemptions"`
	// Prompt tokens by origin.
	LocalCompute float64 `json:"local_compute"`
	LocalHit     float64 `json:"local_hit"`
	Transferred  float64 `json:"transferred"`
	// Transfers seen by this engine as the reading side.
	Transfers       float64 `json:"transfers"`
	TransferBytes   float64 `json:"transfer_bytes"`
	TransferSeconds float64 `json:"transfer_seconds"`
	FailedTransfers float64 `json:"failed_transfers"`
	// Leases seen by this engine as the producing side.
	Expired      float64 `json:"expired"`
	LateNotices  float64 `json:"late_notices"`
	HasTransfer  bool    `json:"has_transfer"`
	FinishedOK   float64 `json:"finished"`
	FinishedErr  float64 `json:"finished_error"`
	PrefillTime  Mean    `json:"prefill_time"`
	QueueTime    Mean    `json:"queue_time"`
	FirstToken   Mean    `json:"first_token"`
	InterToken   Mean    `json:"inter_token"`
	EndToEnd     Mean    `json:"end_to_end"`
	IterationSum float64 `json:"iteration_tokens"`
}

// Mean is the sum and count of a histogram; differences of two scrapes give a window's mean.
type Mean struct {
	Sum   float64 `json:"sum"`
	Count float64 `json:"count"`
}

// Sub returns the window between an older reading and m.
func (m Mean) Sub(old Mean) Mean { return Mean{m.Sum - old.Sum, m.Count - old.Count} }

// Value is the mean, or 0 without observations.
func (m Mean) Value() float64 {
	if m.Count <= 0 {
		return 0
	}
	return m.Sum / m.Count
}
