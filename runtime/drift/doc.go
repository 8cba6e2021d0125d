// Package drift decides which engines make tokens slower than their profile and their peers
// allow.
//
// It promises a pure step: a state and an event give the next state and the verdicts, and the
// same sequence gives the same verdicts. An engine is first put on probation. It is ejected
// only after a probe of its own has failed, while others cover its role, and no more than a
// few a minute are. It refuses to blame an engine for what slows its peers as much, or for the
// time in which the engine prefilled.
//
// Times are seconds on one monotonic clock. A residual is an observed token interval over the
// one that the engine's curve predicts for what it holds; 1 is as measured.
package drift
