// Package tenant tells a router's clients apart by API key and shares the router among
// them: seats and tokens a tenant may hold at most, and a weighted share when all seats
// are wanted.
//
// It promises that the file of tenants holds digests and no key, that a presented key is
// compared in a time that does not tell which tenant it belongs to, that a broken new
// file changes nothing, that no tenant passes a limit of its own, and that a tenant
// within its share is not kept out by one above it for longer than a request of that one
// runs. Without a file everybody is one anonymous tenant without limits.
//
// It refuses clocks and goroutines of its own: the limiter is a state machine with an
// argument now, owned by one goroutine; only Watcher.Run waits, in a goroutine of its
// caller. It queues nobody: who gets no seat is told when to come back.
package tenant
