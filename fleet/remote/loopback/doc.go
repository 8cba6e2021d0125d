// Package loopback runs SSH servers inside this process, for sandboxes and tests.
//
// It promises servers that listen on loopback only, run commands as real child
// processes with a clean environment, and behave like OpenSSH where callers depend
// on it: a closed channel or connection closes the command's standard input and
// kills nothing, a connection carries a limited number of sessions, and a pty or a
// client's environment is refused. It refuses forwarding to anything but loopback,
// and writes no file that it was not told to write. It is no security boundary:
// whoever holds an authorised key acts as the user of this process.
package loopback
