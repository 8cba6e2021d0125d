package gates

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/internal/problem"
	"github.com/narwhal-fleet/narwhal/internal/process"
)

// Unowned is a process of the fleet whose owner nobody can tell: undoing must not touch what
// another started, nor claim to have ended what it cannot see.
type Unowned struct {
	Host string `json:"host,omitempty"`
	Name string `json:"name"`
	Why  string `json:"why"`
}

// Reasons for an unknown owner, as a host tells them.
const (
	unownedRecord  = "its record on the host cannot be read"
	unownedAddress = "no process is recorded under this name, and another listens on "
	unownedLaunch  = "it was launched by none of the records here"
)

// unowned looks, on the host, for processes whose owner cannot be told.
func unowned(l Looking) (out []Unowned) {
	dir := filepath.Join(l.Root, DirRun)
	for _, name := range sortedKeys(l.Listen) {
		r, ok := process.Read(dir, name)
		if ok && (r.Name != name || r.PID <= 0) {
			ok = false
		}
		if !ok {
			if _, err := os.Lstat(filepath.Join(dir, name+".json")); err == nil {
				out = append(out, Unowned{Name: name, Why: unownedRecord})
				continue
			}
		}
		if ok && (r.Remains() || len(r.After) > 0) {
			continue
		}
		if a := slices.IndexFunc(l.Listen[name], held); a >= 0 {
			out = append(out, Unowned{Name: name, Why: unownedAddress + l.Listen[name][a]})
		}
	}
	return out
}

// held reports whether somebody listens on an address of this host.
func held(address string) bool {
	l, err := net.Listen("tcp", address)
	if err == nil {
		_ = l.Close()
		return false
	}
	return errors.Is(err, syscall.EADDRINUSE)
}

// addresses are where a process of the fleet listens.
func addresses(f fleet.Fleet, name string) []string {
	at := func(raw string) []string {
		if u, err := url.Parse(raw); err == nil && u.Port() != "" {
			return []string{u.Host}
		}
		return []string{}
	}
	for _, e := range f.Engines {
		switch name {
		case "engine-" + e.IID:
			return at(e.URL)
		case "sidecar-" + e.IID:
			return at(e.AttestationURL)
		}
	}
	switch s := f.Deploy.Router.Standby; {
	case name == routerProcess:
		return []string{f.Deploy.Router.Listen}
	case name == standbyProcess && s != nil:
		return []string{s.Listen}
	}
	return []string{}
}

// disown asks the hosts for the owners of what a rollback is about to stop. A host that does
// not answer is none of its business: what it cannot do there it says itself.
func (r *Runner) disown(ctx context.Context, steps []UndoStep) (out []Unowned) {
	asked := map[string]Looking{}
	for _, s := range steps {
		if _, known := r.Fleet.Deploy.Hosts[s.Host]; !known || s.Stops == "" {
			continue
		}
		l, ok := asked[s.Host]
		if !ok {
			l = Looking{Root: r.Fleet.Deploy.Hosts[s.Host].Root, Listen: map[string][]string{}}
		}
		l.Listen[s.Stops] = addresses(r.Fleet, s.Stops)
		l.Procs = append(l.Procs, s.Stops)
		asked[s.Host] = l
	}
	var known *launches
	for _, host := range sortedKeys(asked) {
		l := asked[host]
		answer, err := r.askHost(ctx, host, l)
		var seen Seen
		if err != nil || json.Unmarshal(answer, &seen) != nil {
			continue
		}
		for _, name := range sortedKeys(l.Listen) {
			why := ""
			if i := slices.IndexFunc(seen.Unowned, func(u Unowned) bool { return u.Name == name }); i >= 0 {
				why = clean(seen.Unowned[i].Why, 200)
			} else if launch := seen.Facts["proc/"+name+"/launch"]; launch != "" && launch != Gone {
				if known == nil {
					known = &launches{dir: r.Dir}
				}
				if !known.know(launch) {
					why = unownedLaunch
				}
			}
			if why != "" {
				out = append(out, Unowned{Host: host, Name: name, Why: why})
			}
		}
	}
	return out
}

// launches knows the launches of a record and of the earlier runs beside it.
type launches struct {
	dir    string
	own    []string
	others []string
	read   bool
}

// know reports whether some intent launched so.
func (l *launches) know(launch string) bool {
	holds := func(argv string) bool { return strings.Contains(argv, launch) }
	if l.own == nil {
		l.own = intended(l.dir)
	}
	if slices.ContainsFunc(l.own, holds) {
		return true
	}
	if !l.read {
		l.read = true
		dirs, _ := filepath.Glob(filepath.Join(filepath.Dir(l.dir), "*"))
		for _, d := range dirs {
			if d != l.dir {
				l.others = append(l.others, intended(d)...)
			}
		}
	}
	return slices.ContainsFunc(l.others, holds)
}

// intended are the commands that the intents of a record hold.
func intended(dir string) []string {
	out := []string{}
	s, err := record.Read(dir)
	if err != nil {
		return out
	}
	for _, ev := range s.Events {
		if ev.Kind != record.KindIntent {
			continue
		}
		if b, err := ev.Decode(); err == nil {
			if i, ok := b.(*record.Intent); ok {
				out = append(out, strings.Join(i.Argv, "\x00"))
			}
		}
	}
	return out
}

// refuse names the first of them and what to do.
func refuse(all []Unowned) error {
	u := all[0]
	more := ""
	if len(all) > 1 {
		more = fmt.Sprintf(", and %d more", len(all)-1)
	}
	p := problem.New(problem.Refused, "owner_unknown", fmt.Sprintf("%s on host %s may be another's: %s%s", clean(u.Name, 128), u.Host, u.Why, more),
		"look on that host: ss -ltnp shows who listens, the folder run below its root holds the records; end what is not this fleet's, or remove a damaged record once nothing runs under it, then run the same rollback again")
	p.Host = u.Host
	return p
}
