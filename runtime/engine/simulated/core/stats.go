package core

import (
	"sort"
	"time"
)

// Stats are the engine's counters since its start. The names of the metrics that they become
// are the server's business.
type Stats struct {
	Prompt, Generated                     int64
	LocalCompute, LocalHit, Transferred   int64
	Queries, Hits                         int64 // local prefix cache, tokens
	ExternalQueries, ExternalHits         int64 // remote KV, tokens; hits count before the read
	Preemptions, Expired, LateNotices     int64
	Rejected, LoadFailures                int64
	Stopped, Length, Failed, Aborted      int64
	FirstToken, InterToken, PerToken      Hist
	EndToEnd, Queue, Prefill, Decode      Hist
	Inference, Iteration                  Hist
	PromptTokens, OutTokens, Preempts     Hist
	MaxTokens, Computed                   Hist
	Transfer, Post, Bytes, Descriptors    Hist
	FailedTransfers, FailedNotices, Reads int64
}

// Bounds of the histograms: latencies in seconds, counts, bytes.
var (
	latencyBounds = []float64{0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560}
	itlBounds     = []float64{0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80}
	countBounds   = []float64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000}
	byteBounds    = []float64{1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10}
)

func newStats() Stats {
	lat, cnt := Hist{bounds: latencyBounds}, Hist{bounds: countBounds}
	itl := Hist{bounds: itlBounds}
	return Stats{
		FirstToken: lat, InterToken: itl, PerToken: itl, EndToEnd: lat, Queue: lat, Prefill: lat,
		Decode: lat, Inference: lat, Iteration: cnt, PromptTokens: cnt, OutTokens: cnt,
		Preempts: cnt, MaxTokens: cnt, Computed: cnt, Transfer: lat, Post: lat,
		Bytes: Hist{bounds: byteBounds}, Descriptors: cnt,
	}
}

// Hist is a histogram with fixed bounds.
type Hist struct {
	bounds []float64
	counts []uint64
	Sum    float64
	Count  uint64
}

// Observe adds a value.
func (h *Hist) Observe(v float64) {
	if h.counts == nil {
		h.counts = make([]uint64, len(h.bounds)+1)
	}
	h.counts[sort.SearchFloat64s(h.bounds, v)]++
	h.Sum += v
	h.Count++
}

// Scaled is the histogram in another unit.
func (h Hist) Scaled(by float64) Hist {
	bounds := make([]float64, len(h.bounds))
	for i, b := range h.bounds {
		bounds[i] = b * by
	}
	h.bounds, h.Sum = bounds, h.Sum*by
	return h
}

// Buckets calls f with each upper bound and the count of values up to it.
func (h *Hist) Buckets(f func(le float64, count uint64)) {
	var n uint64
	for i, b := range h.bounds {
		if h.counts != nil {
			n += h.counts[i]
		}
		f(b, n)
	}
}

// looked counts the cache look-up of a sequence, once.
func (st *Stats) looked(s *Seq) {
	if s.loads {
		return
	}
	s.loads = true
	n := int64(len(s.Prompt))
	st.Queries += n
	st.Hits += int64(s.cached)
	st.ExternalQueries += n - int64(s.cached)
	st.ExternalHits += int64(s.external)
}

func (st *Stats) token(s *Seq, now time.Time) {
	st.Generated++
	if len(s.Out) > 1 {
		st.InterToken.Observe(now.Sub(s.last).Seconds())
		s.last = now
		return
	}
	s.first, s.last = now, now
	n := int64(len(s.Prompt))
	st.Prompt += n
	st.LocalHit += int64(s.cached)
	st.Transferred += int64(s.external)
	st.LocalCompute += n - int64(s.cached+s.external)
	st.FirstToken.Observe(now.Sub(s.arrived).Seconds())
}

func (st *Stats) done(s *Seq, r Result, now time.Time) {
	switch r.Reason {
	case "stop":
		st.Stopped++
	case "length":
		st.Length++
	default:
		st.Failed++
	}
	st.Preempts.Observe(float64(s.preempts))
	if r.Reason == "error" {
		return
	}
	decode := s.last.Sub(s.first).Seconds()
	st.EndToEnd.Observe(now.Sub(s.arrived).Seconds())
	st.Queue.Observe(s.scheduled.Sub(s.arrived).Seconds())
	st.Prefill.Observe(s.first.Sub(s.scheduled).Seconds())
	st.Decode.Observe(decode)
	st.Inference.Observe(now.Sub(s.scheduled).Seconds())
	if k := len(s.Out) - 1; k > 0 {
		st.PerToken.Observe(decode / float64(k))
	} else {
		st.PerToken.Observe(0)
	}
	st.PromptTokens.Observe(float64(len(s.Prompt)))
	st.OutTokens.Observe(float64(len(s.Out)))
	st.MaxTokens.Observe(float64(s.MaxTokens))
	st.Computed.Observe(float64(len(s.Prompt) - s.Cached()))
}
