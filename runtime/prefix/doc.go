// Package prefix estimates which engine holds which head of a prompt in its cache.
//
// It promises a chain of hashes over a prompt's bytes in which two prompts agree as far as
// their whole chunks and everything that keeps their caches apart agree, and an index of chains
// for each engine that is bounded, forgets the longest unused first and a chain from its end,
// and gives the same answer after the same calls. It knows no tokens, no template and no clock,
// and it refuses to prove anything: what an engine holds, only the engine can tell.
package prefix
