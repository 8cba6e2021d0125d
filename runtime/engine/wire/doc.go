// Package wire sends the legs of requests to one engine: HTTP/1.1 over plain TCP, one
// goroutine a call.
//
// It promises one write for head and body, answers whose head is bounded, an abort at the
// engine as soon as the context ends, and connections that are used again only after an
// answer was read to its end and while the engine has said nothing more. It refuses to
// follow redirects, to send anything twice, and to speak TLS: that is net/http's.
//
// It stands beside net/http because a call there passes through two more goroutines
// (BenchmarkDataPath, buffered requests).
package wire
