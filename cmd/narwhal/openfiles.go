package main

import (
	"fmt"
	"io"
	"syscall"
)

const (
	filesPerRequest = 3  // the client's connection, and one to the engine of each leg
	otherFiles      = 64 // listener, journal, lease, probes
)

// warnOpenFiles says when the process may not open the files that as many requests need. The
// Go runtime has raised the limit as far as it may.
func warnOpenFiles(w io.Writer, requests int) {
	var l syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l) != nil {
		return
	}
	if want := uint64(requests)*filesPerRequest + otherFiles; l.Cur < want {
		fmt.Fprintf(w, "narwhal: warning: %d open files are allowed, and %d requests at once need about %d\n", l.Cur, requests, want)
		fmt.Fprintf(w, "narwhal: hint: raise the limit before the start (ulimit -n %d, or LimitNOFILE of a unit), or lower --max-concurrent\n", want)
	}
}
