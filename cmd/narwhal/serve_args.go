package main

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"syscall"

	"github.com/narwhal-fleet/narwhal/internal/problem"
	"github.com/narwhal-fleet/narwhal/runtime/journal"
	"github.com/narwhal-fleet/narwhal/runtime/router"
)

// valid refuses values that no router can have, before anything is read or started. given
// tells which flags the command line names.
func (f serveFlags) valid(given func(string) bool) error {
	bad := func(message, hint string) error {
		return problem.New(problem.Invalid, "invalid_arguments", message, hint)
	}
	if f.listen != "" {
		for _, other := range []string{"host", "port"} {
			if given(other) {
				return bad("--listen and --"+other+" are both given", "--listen ADDRESS:PORT says it all; leave --"+other+" out")
			}
		}
		if _, err := portOfAddress(f.listen); err != nil {
			return bad(fmt.Sprintf("--listen %q: %v", f.listen, err), "--listen takes ADDRESS:PORT, for example 127.0.0.1:8000; a port is 0 (a free one) to 65535")
		}
	}
	return nil
}

// portOfAddress reads the numeric port of host:port.
func portOfAddress(s string) (int, error) {
	_, port, err := net.SplitHostPort(s)
	if err != nil {
		return 0, errors.New("no address with a port")
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return 0, fmt.Errorf("%q is no port", port)
	}
	return int(n), nil
}

// serveProblem says what ended a router and what to do about it; up tells whether it had served.
func serveProblem(listen string, up bool, err error) error {
	var held *journal.ErrHeld
	switch {
	case up:
	case errors.Is(err, router.ErrResume):
		return problem.Wrap(problem.Failed, "state_unreadable", "serve the fleet", err, "put a whole copy of the state file back, or start without --resume: roles, holds and counters then begin anew")
	case errors.Is(err, journal.ErrForeign):
		return problem.Wrap(problem.Invalid, "journal_foreign", "open the journal", err, "nothing of it was changed; name a new file, or a journal, with --journal")
	case errors.As(err, &held):
		hint := "stop that router first; another fleet needs another file: --journal FILE"
		if held.PID > 0 {
			hint = fmt.Sprintf("kill -TERM %d stops that router; another fleet needs another file: --journal FILE", held.PID)
		}
		return problem.Wrap(problem.Locked, "journal_held", "serve the fleet", held, hint)
	case errors.Is(err, syscall.EADDRINUSE):
		return problem.Wrap(problem.Failed, "port_in_use", "serve the fleet", err, "another process listens on "+listen+": ss -ltnp names it; stop it, or choose another address with --listen")
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return problem.Wrap(problem.Failed, "no_such_address", "serve the fleet", err, "this machine has no such address: ip address lists those for --listen")
	case errors.Is(err, syscall.EACCES):
		return problem.Wrap(problem.Failed, "not_permitted", "serve the fleet", err, "a port below 1024 needs rights, and so does the journal's folder: choose others with --listen and --journal")
	}
	if errors.Is(err, router.ErrGeneration) {
		return problem.Wrap(problem.Failed, "profiles_stale", "serve the fleet", err, "an engine that restarted needs a new profile: narwhal profile --overwrite, or narwhal gate run --to F, measures the live engines and writes the store; start again with it")
	}
	return problem.Wrap(problem.Failed, "serve_failed", "serve the fleet", err, "the log lines above say more")
}

// loopbackAddress refuses what a tunnel may not listen on.
func loopbackAddress(s string) error {
	const hint = "--local 127.0.0.1:PORT; port 0 takes a free one"
	bad := func(why string) error {
		return problem.New(problem.Invalid, "invalid_arguments", fmt.Sprintf("the tunnel's local address %q: %s", s, why), hint)
	}
	if _, err := portOfAddress(s); err != nil {
		return bad(err.Error())
	}
	host, _, _ := net.SplitHostPort(s) // portOfAddress has split it
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return bad("a tunnel listens on loopback only")
	}
	return nil
}
