// Package router is the serving process of a fleet: its HTTP surface, the life of each
// request over two engines, the probes, and the carrying out of role decisions.
//
// It promises one owner for both legs of a request: one deadline, the sibling leg aborted
// at once, a handoff checked and never reused, at most one full retry and none after the
// first output byte, one journal row whatever happens. Errors before the first output
// byte are real HTTP errors; after it, one terminal error event. It refuses to serve an
// engine whose profile is missing, and never blames an engine for a client's fault.
//
// One goroutine owns the inventory and all counters; everything else asks it or reads
// the immutable view that it publishes.
package router
