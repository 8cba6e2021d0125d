// Package lease decides which of several routers may serve a fleet, and for how long.
//
// It promises that at most one holder's local validity runs at any moment, that an epoch
// is never given twice while somebody remembers it, and that a holder's local validity ends
// before the stored expiry does. It refuses to read a damaged document as an absent one, to
// renew a term that has expired or passed to another, and to renew at all once a term is over.
//
// # The file
//
// File keeps the document of the reference implementation, byte for byte: every change
// happens under an flock on <path>.lock and replaces the file by rename, so routers of both
// implementations may share one lease. Clocks: expiry is wall time, which two routers on one
// host read alike; on a shared file system the safety margin must cover the difference of the
// clocks. Local validity is bounded by the monotonic and the wall clock at once, so neither
// a step of the clock nor a suspended machine lengthens it.
//
// # Proof that a holder is gone
//
// Waiting for expiry is the only rule that holds everywhere, and it costs seconds. On a
// local file system the kernel knows better: the holder keeps an flock on <path>.alive,
// which lists its holder and epoch, for as long as its process exists. Who gets that lock
// and finds there the holder and epoch of the unexpired lease knows that the process has
// ended, since descriptors close only after the last instruction of the process, and claims
// the next epoch at once. The order that makes it sound:
//
//   - all claims and renewals run under <path>.lock, and a claimant writes <path>.alive
//     before the lease names it, so there is no moment at which a live holder of the
//     lease is named by an unlocked file;
//   - the descriptor is closed on exec, so a child never keeps it, and is given up only
//     after the lease has been released, never because a renewal failed;
//   - a stopped (SIGSTOP) holder keeps the lock: only expiry takes its lease, and when it
//     goes on both clocks tell it that its validity is over;
//   - a holder that could not get the lock, since the one before it still exists, is not
//     named by the file and is waited for; it tries again at each renewal;
//   - a router of the reference writes no such file and is waited for;
//   - the file names its own inode: a copy or a file put in its place proves nothing.
//
// # Removed and damaged files
//
// A holder whose document is removed, damaged or replaced by one of its past writes it anew at
// its next renewal, as long as it has the alive lock in the name of its term; so it does when
// all files were removed. A claimant who finds no such document asks the alive file and what
// it saw itself at earlier looks. Is the last holder gone for certain, it claims the epoch
// after the one it knows; else it waits until the document was lacking for the whole time of a
// lease. A holder that is still valid has written it by then. Where nobody was ever known,
// absence is a new lease and damage is refused; what names another schema or version is always
// refused. On Linux a holder also binds an abstract socket, which no removal of files ends: a
// router that starts when all files were removed waits for it too. Should that holder hang, the
// epochs begin anew, since nobody knows them.
//
// # A process that stops in the middle
//
// Who is stopped, or waits for a disk, while it changes the files keeps <path>.lock. When a
// claimant could not have that lock for the length of a lease, and the lease is over, it puts
// another lock file in its place, one claimant at a time by <path>.lock.turn. The process before
// finds its validity over when it goes on; what it then writes is of an epoch that has passed.
//
// # Where the proof holds
//
// The proof needs one kernel that sees all lock holders. It is used only where the folder
// is on a file system known to be local (ext2-4, xfs, btrfs, zfs, f2fs, bcachefs, tmpfs,
// overlay; on macOS what the system marks local), and not on NFS, SMB, FUSE or cluster
// file systems, where a server may drop the lock of a client that it cannot reach while
// that client still serves. ProofOff and ProofOn overrule this choice.
package lease
