package router

import (
	"github.com/narwhal-fleet/narwhal/runtime/journal"
	"github.com/narwhal-fleet/narwhal/runtime/model"
)

// counters are the run's totals; only the owner writes them.
type counters struct {
	offered, unsized, served, sloMet   int
	cancelled, invalid                 int
	failed, rejected, expired, refused map[model.Reason]int
	retained, retainedHigh, inflight   int
	prefillAttempts, decodeAttempts    int
	retryAttempts, retryDenied         int
	creditsSpent, servedAfterRetry     int
	retryDenials                       map[string]int // by cause
	unserved                           int
	tokens                             int
	prefillSeconds, decodeSeconds      float64
	attemptFailures                    map[[2]string]int
	ejections, readmissions            map[[2]string]int
	probes                             map[[3]string]int
	reversals, flipPrefill, flipDecode int
	flipsRefused                       int
	lastMove                           string
	belowFloorSince                    float64
	belowFloor                         bool
	breaches                           int
	belowFloorTotal                    float64
	strayHandoffs                      int
	stageFailures                      map[string]int
	stageRuns                          map[string]int // failures in a row
	stageAt                            map[string]*float64
	holdStarts                         map[[2]string]int
	holdEnds                           map[[3]string]int
	alarms                             map[[2]string]int
	stripped                           map[string]int // members of client bodies that reach into the KV transfer
	drain                              drainRate
	inputSum                           float64
	inputCount                         int

	// Histories behind demand_history and attainment: of terminal rows, by arrival.
	unsizedOffers, arrivals, expected, observed, residency window
	outcomes                                               window         // by end
	known                                                  map[string]any // beside the last decision
}

var (
	failedReasons = []model.Reason{model.ReasonNoEngine, model.ReasonUnreach, model.ReasonConnection, model.ReasonTimeout, model.ReasonOverloaded,
		model.ReasonRejected, model.ReasonEngine, "local_pool", model.ReasonInvalid, model.ReasonLimit, model.ReasonInternal}
	rejectedReasons = []model.Reason{model.ReasonInflight, "saturated", model.ReasonNotReady}
	expiredReasons  = []model.Reason{model.ReasonDeadline, "queue_timeout", model.ReasonHandoff}
	refusedReasons  = []model.Reason{model.ReasonQueue, model.ReasonPrompt, "aggregate_unpriced", model.ReasonSlotWait, model.ReasonKVCapacity, model.ReasonTPOT}
)

func zeroed(reasons []model.Reason) map[model.Reason]int {
	m := map[model.Reason]int{}
	for _, r := range reasons {
		m[r] = 0
	}
	return m
}

func newCounters() counters {
	return counters{unsizedOffers: window{name: "unsized"}, arrivals: window{name: "arrivals"}, expected: window{name: "expected_decode"},
		observed: window{name: "observed_decode"}, residency: window{name: "residency"}, failed: zeroed(failedReasons), rejected: zeroed(rejectedReasons), expired: zeroed(expiredReasons), refused: zeroed(refusedReasons),
		attemptFailures: map[[2]string]int{}, retryDenials: map[string]int{}, stripped: map[string]int{}, alarms: map[[2]string]int{}, stageFailures: map[string]int{},
		stageRuns: map[string]int{}, stageAt: map[string]*float64{},
		holdStarts: map[[2]string]int{}, holdEnds: map[[3]string]int{}, ejections: map[[2]string]int{}, readmissions: map[[2]string]int{}, probes: map[[3]string]int{}}
}

func sum(m map[model.Reason]int) (n int) {
	for _, v := range m {
		n += v
	}
	return n
}

// finish counts a terminal row once.
func (n *counters) finish(r *journal.Row) {
	reason := model.Reason("unclassified")
	if r.Reason != nil {
		reason = *r.Reason
	}
	switch r.Terminal {
	case journal.Completed:
		n.served++
		if r.Attempts > 1 {
			n.servedAfterRetry++
		}
		if r.SLOMet {
			n.sloMet++
		}
	case journal.Failed:
		n.failed[reason]++
	case journal.Refused:
		n.refused[reason]++
	case journal.Rejected:
		n.rejected[reason]++
	case journal.Expired:
		n.expired[reason]++
	case journal.Invalid:
		n.invalid++
	case journal.Cancelled:
		n.cancelled++
	}
	n.remember(r)
	if r.Observed != nil {
		n.tokens += *r.Observed
	}
	n.prefillSeconds += r.Upstream.Prefill
	n.decodeSeconds += r.Upstream.Decode
}

// remember puts a terminal row into the histories.
func (n *counters) remember(r *journal.Row) {
	if !r.InputSized {
		n.unsized++
		n.unsizedOffers.add(r.Arrived)
	} else {
		n.arrivals.add(r.Arrived)
		n.expected.add(r.Arrived)
	}
	if r.Terminal == journal.Completed && r.OutputLen != nil {
		n.observed.add(r.Arrived)
	}
	switch r.Terminal {
	case journal.Cancelled, journal.Rejected, journal.Invalid:
	default:
		n.outcomes.add(r.Arrived + r.Duration)
	}
}

// demand lists the histories of demand in the contract's order. That of residency stays
// empty: the controller reads what is resident from its snapshot.
func (n *counters) demand() []*window {
	return []*window{&n.unsizedOffers, &n.arrivals, &n.expected, &n.observed, &n.residency}
}
