package main

import (
	"cmp"
	"fmt"
	"io"
	"syscall"

	"github.com/narwhal-fleet/narwhal/internal/problem"
	"github.com/narwhal-fleet/narwhal/runtime/router"
)

const (
	filesPerRequest = 3  // the client's connection, and one to the engine of each leg
	otherFiles      = 64 // listener, journal, lease, probes
)

// openFiles is how many files this process may open, 0 when that is not known. The Go runtime has
// raised the limit as far as it may.
func openFiles() uint64 {
	var l syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l) != nil {
		return 0
	}
	return l.Cur
}

// enoughFiles refuses a limit under which a router of so many engines could not keep its lease.
func enoughFiles(engines int) error {
	files, least := openFiles(), uint64(router.LeastFiles(engines))
	if files == 0 || files >= least {
		return nil
	}
	return problem.New(problem.Invalid, "open_files", fmt.Sprintf("%d open files are allowed, and a router of %d engines needs at least %d", files, engines, least),
		fmt.Sprintf("raise the limit before the start: ulimit -n %d or more, or LimitNOFILE of a unit", least))
}

// boundClients keeps clients from taking the files that the router itself needs.
func boundClients(cfg *router.Config) {
	if files := openFiles(); files > 0 {
		cfg.HTTP.MaxClients = router.ClientLimit(files, cmp.Or(cfg.MaxConcurrent, cfg.Fleet.Serving.MaxConnections), len(cfg.Fleet.Engines))
	}
}

// warnOpenFiles says when the process may not open the files that as many requests need.
func warnOpenFiles(w io.Writer, requests int, clients int) {
	files := openFiles()
	if want := uint64(requests)*filesPerRequest + otherFiles; files > 0 && files < want {
		fmt.Fprintf(w, "narwhal: warning: %d open files are allowed, and %d requests at once need about %d: clients get %d connections\n", files, requests, want, clients)
		fmt.Fprintf(w, "narwhal: hint: raise the limit before the start (ulimit -n %d, or LimitNOFILE of a unit), or lower --max-concurrent\n", want)
	}
}
