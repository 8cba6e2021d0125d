// Package remote works on one host over SSH: it runs commands, puts and gets files,
// dials and tunnels.
//
// It promises that a host key is proven by a pin or a known_hosts line before anything
// else happens; that every command, put, get, dial and tunnel passes the caller's policy
// first; that a command's process group ends with its connection, its context or its
// limit; that output is bounded; that a file appears under its name only complete, with
// its digest proven on the host; and that errors are types that name the hop and the stage.
//
// It refuses to trust a key on first use, to open a tunnel beyond loopback, to put a
// secret into a command line, a file or an error, and to reconnect by itself.
package remote
