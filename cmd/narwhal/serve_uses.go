package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/narwhal-fleet/narwhal/internal/filelock"
	"github.com/narwhal-fleet/narwhal/internal/ownfile"
	"github.com/narwhal-fleet/narwhal/internal/problem"
	"github.com/narwhal-fleet/narwhal/runtime/journal"
	"github.com/narwhal-fleet/narwhal/runtime/router"
	"github.com/narwhal-fleet/narwhal/runtime/router/lease"
	"github.com/narwhal-fleet/narwhal/runtime/router/standby"
)

// Options that name another file.
const (
	otherJournal = "--journal FILE"
	otherState   = "--state-path FILE, or recovery.state_path,"
	otherLease   = "--lease-path FILE"
)

// claimFiles refuses to write over what no router wrote, and to use one file for two things.
// It reads, makes and locks nothing that stays. The state file's path is settled: links are
// followed here, once.
func (f *serveFlags) claimFiles(cfg *router.Config) error {
	if path := cfg.HA.StatePath; path != "" {
		real, err := ownfile.Real(path)
		if err != nil {
			return badFile("state", "keep the state", err, otherState)
		}
		cfg.HA.StatePath = real
	}
	if err := distinct(f.uses(cfg), cfg.JournalPath); err != nil {
		return problem.Wrap(problem.Invalid, "one_file_twice", "check the router's files", err, "a file that is written has no other use: "+otherJournal+", "+otherState+" and "+otherLease+" name others")
	}
	if path := cfg.JournalPath; path != "" {
		if err := journal.CheckPath(path); err != nil {
			return badFile("journal", "open the journal", err, otherJournal)
		}
	}
	if path := cfg.HA.StatePath; path != "" {
		if err := errors.Join(ownfile.Check(path, standby.Kind), filelock.Check(path)); err != nil {
			return badFile("state", "keep the state", err, otherState)
		}
	}
	if f.ha.path == "" {
		return nil
	}
	switch err := lease.CheckPath(f.ha.path); {
	case errors.Is(err, lease.ErrEmpty):
		return problem.Wrap(problem.Invalid, "lease_empty", "use the lease", err, "a router that holds it writes it anew within seconds; when none runs, remove the file")
	case err != nil:
		return badFile("lease", "use the lease", err, otherLease)
	}
	return nil
}

func badFile(what, doing string, err error, option string) error {
	if errors.Is(err, ownfile.ErrForeign) || errors.Is(err, ownfile.ErrIrregular) || errors.Is(err, journal.ErrForeign) {
		return problem.Wrap(problem.Invalid, what+"_foreign", doing, err, "nothing of it was changed; "+option+" names a new file, or one that a router wrote")
	}
	return problem.Wrap(problem.Failed, "no_"+what+"_file", doing, err, option+" names a file that this router may write")
}

// uses lists every file that the router reads or writes.
func (f *serveFlags) uses(cfg *router.Config) (list []ownfile.Use) {
	add := func(what, path string, writes bool) {
		if path != "" {
			list = append(list, ownfile.Use{What: what, Path: path, Writes: writes})
		}
	}
	for _, p := range f.fleet {
		if p != "-" {
			add("the fleet file", p, false)
		}
	}
	add("the profiles", cfg.Fleet.Profiles.Path, false)
	add("the file of tenants", f.ha.tenants, false)
	add("the control token", referredFile(f.ha.control), false)
	add("the etcd password", referredFile(f.ha.pass), false)
	for _, p := range []string{f.ha.ca, f.ha.cert, f.ha.private} {
		add("a certificate for etcd", p, false)
	}
	if p := cfg.JournalPath; p != "" && !isSink(p) {
		add("the journal", p, true)
	}
	if p := cfg.HA.StatePath; p != "" {
		add("the state file", p, true)
		add("the state file's lock", filelock.Name(p), true)
	}
	if f.ha.path != "" {
		for i, p := range lease.Paths(f.ha.path) {
			add([]string{"the lease", "the lease's lock", "the file of the lease's holder"}[i], p, true)
		}
	}
	return list
}

// isSink reports whether a path names what keeps nothing: a device or a pipe.
func isSink(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode()&(os.ModeCharDevice|os.ModeNamedPipe) != 0
}

func referredFile(ref string) string {
	p, _ := strings.CutPrefix(ref, "file:")
	if p == ref {
		return ""
	}
	return p
}

// distinct is ownfile.Distinct, and knows the files that a rotation of the journal makes.
func distinct(uses []ownfile.Use, rows string) error {
	if err := ownfile.Distinct(uses); err != nil || rows == "" {
		return err
	}
	for _, u := range uses {
		real, err := ownfile.Real(u.Path)
		if err != nil {
			return err
		}
		if journal.Owns(rows, real) {
			return fmt.Errorf("%s %s is a file of the journal %s", u.What, u.Path, rows)
		}
	}
	return nil
}
