package model

// Reason is why something was refused, dropped or ended. The set is closed; the words
// are those of the journal.
type Reason string

// Reasons of a refusal.
const (
	ReasonQueue      Reason = "queue"       // queueing alone breaks the first-token budget
	ReasonPrompt     Reason = "prompt"      // the prompt's own prefill does
	ReasonSlotWait   Reason = "slot_wait"   // no decode seat
	ReasonKVCapacity Reason = "kv_capacity" // no room in the KV cache
	ReasonTPOT       Reason = "tpot"        // the batch would miss the token target
	ReasonNoEngine   Reason = "no_engine"   // nobody can take a leg
)

// Reasons for dropping a candidate beside those of a refusal.
const (
	ReasonUnprofiled Reason = "unprofiled"
	ReasonAvoided    Reason = "avoided"
	ReasonDown       Reason = "down"
	ReasonRole       Reason = "role"
	ReasonBarred     Reason = "barred" // KV does not arrive over the pair
)

// Reasons of a rejection, an expiry or a failure.
const (
	ReasonInflight     Reason = "inflight_limit"
	ReasonNotReady     Reason = "not_ready"
	ReasonDeadline     Reason = "deadline"
	ReasonHandoff      Reason = "handoff"
	ReasonShutdown     Reason = "shutdown"
	ReasonUnreach      Reason = "engine_unreachable"
	ReasonConnection   Reason = "engine_connection"
	ReasonTimeout      Reason = "engine_timeout"
	ReasonOverloaded   Reason = "engine_overloaded"
	ReasonRejected     Reason = "engine_rejected"
	ReasonEngine       Reason = "engine_error"
	ReasonQueueTimeout Reason = "queue_timeout"
	ReasonPool         Reason = "local_pool"
	// Of a tenant's limits, and of a client without a valid key.
	ReasonTenant       Reason = "tenant_limit"
	ReasonUnauthorized Reason = "unauthorized"
	ReasonInvalid      Reason = "invalid_response"
	ReasonLimit        Reason = "response_limit"
	ReasonInternal     Reason = "internal"
)

// Cause maps a refusal's reason to the journal's refused_cause.
func (r Reason) Cause() string {
	switch r {
	case ReasonSlotWait, ReasonKVCapacity, ReasonTPOT:
		return "decode"
	}
	return string(r)
}
