// Package etcd keeps the lease of a fleet in etcd, for routers on several hosts.
//
// It promises what package lease promises, by the clock of etcd alone: the lease is one
// key with the same document, bound to an etcd lease with the term's time to live, and it
// is held exactly as long as the key exists. A claim is one transaction that succeeds only
// while there is no key, so the clocks of the hosts need not agree; each change compares
// the key's revision; the epoch stands in a second key that no expiry removes. Local
// validity counts from before the first request, so it ends before etcd's own count does.
//
// A value that is no lease is written over: by the holder at its next renewal, or by a claimant who
// saw it unchanged for the whole time of a lease, both only while the revision is the one that they
// read. A key that is deleted while the etcd lease of a known holder lives is not free either. Where
// nobody knows an epoch, or the value is a lease of another version, the error names the command
// that an operator gives.
//
// It refuses to take a lease early: a dead holder on another host cannot be told from one
// that is cut off, so its lease runs out. It refuses a password over plain connections that
// leave the machine, and addresses with a user or password inside.
package etcd
