// Package standby is the router that waits: it follows a primary, keeps its last handoff
// document, and takes over when the primary is gone.
//
// It promises that it opens only with a lease whose epoch follows the document's, with a
// document young enough, after the local router restored and verified it, and while the
// lease is valid at each of these steps; any failure gives the lease back and says why. It
// refuses a handoff of another version for good, and everything from the primary that is
// too long, misshapen or does not agree with the stored lease.
//
// # When the primary counts as gone
//
// A probe that fails is a miss, and a number of misses in a row starts a takeover. Two
// observations count as all misses at once, since waiting would teach nothing:
//
//   - the witness, an idle TCP connection to the primary, ends and a new connection is
//     refused: the primary's machine answers and nothing listens there any more;
//   - the primary itself says that it does not control the fleet, and the lease that it
//     held is released: a planned handover.
//
// A primary may be a standby itself: it passes on the document of the router that it follows, with
// its age. The standby between has the first claim, so only the misses count then, and the witness.
//
// Neither decides who serves: the lease does. A primary that is slow, cut off or behind a
// broken proxy costs the standby only refused claims. After a witness's end claims are
// repeated within milliseconds, since the kernel closes a dead process's listener and its
// lease's lock one after the other.
package standby
