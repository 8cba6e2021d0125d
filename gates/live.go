package gates

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"path"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/fleet/remote"
	"github.com/narwhal-fleet/narwhal/fleet/units"
	"github.com/narwhal-fleet/narwhal/gates/record"
)

// Looking is what the host verb "observe" is asked.
type Looking struct {
	Root  string            `json:"root"`
	Peers map[string]string `json:"peers,omitempty"` // host id → fabric address
	Files []string          `json:"files,omitempty"`
	Trees []string          `json:"trees,omitempty"` // checkpoint folders
	Units string            `json:"units,omitempty"` // folder of unit files
	Procs []string          `json:"procs,omitempty"`
	// Health are URLs by process: one that runs and does not answer there is Silent.
	Health map[string]string `json:"health,omitempty"`
	// Ready are URLs by process: one that answers 200 there serves.
	Ready map[string]string `json:"ready,omitempty"`
	// Listen are addresses by process whose owner must be known.
	Listen map[string][]string `json:"listen,omitempty"`
}

// Serves and Idle tell whether a router or standby admits requests.
const (
	Serves = "yes"
	Idle   = "no"
)

// Silent is the id of a process that runs and does not answer.
const Silent = "silent"

// Seen is its answer: facts named within the host ("boot", "route/h2") and of
// processes ("proc/engine-p0/id").
type Seen struct {
	Facts map[string]string `json:"facts"`
	// Strays are processes that were started here and that the fleet does not name.
	Strays []string `json:"strays,omitempty"`
	// Unowned are the processes of Looking.Listen whose owner nobody can tell.
	Unowned []Unowned `json:"unowned,omitempty"`
}

// looking says what may be seen on a host of the fleet.
func looking(f fleet.Fleet, host string) Looking {
	h := f.Deploy.Hosts[host]
	l := Looking{Root: h.Root, Files: h.Files, Trees: f.ModelDirs(host), Units: units.Folder(f, host), Peers: map[string]string{}, Health: map[string]string{}, Ready: map[string]string{}}
	for _, e := range f.Engines {
		if f.HostOf(e.IID) == host {
			l.Procs = append(l.Procs, "engine-"+e.IID, "sidecar-"+e.IID)
			l.Health["engine-"+e.IID] = strings.TrimRight(e.URL, "/") + "/health"
			if u, err := url.Parse(e.AttestationURL); err == nil && u.Host != "" {
				l.Health["sidecar-"+e.IID] = u.Scheme + "://" + u.Host + "/health"
			}
		}
	}
	for _, e := range f.Engines {
		for i, worker := range f.Deploy.Engines[e.IID].Workers {
			if worker == host {
				l.Procs = append(l.Procs, fleet.RankProcess(e.IID, i+1))
			}
		}
	}
	if f.Deploy.Router.Host == host {
		l.Procs = append(l.Procs, "router")
		l.Health["router"] = "http://" + f.Deploy.Router.Listen + "/health"
		l.Ready["router"] = "http://" + f.Deploy.Router.Listen + "/ready"
	}
	if s := f.Deploy.Router.Standby; s != nil && s.Host == host {
		l.Procs = append(l.Procs, "standby")
		l.Health["standby"] = "http://" + s.Listen + "/health"
		l.Ready["standby"] = "http://" + s.Listen + "/ready"
	}
	if len(l.Procs) > 0 {
		for _, other := range f.EngineHosts() {
			if other != host {
				l.Peers[other] = f.FabricAddress(other)
			}
		}
	}
	return l
}

// observeScript asks the installed binary; a host that carries none, or one that does not
// run, answers with what a POSIX shell can tell.
func observeScript(l Looking) string {
	bin := remote.Quote(path.Join(l.Root, "current", "narwhal"))
	return fmt.Sprintf(`if [ -x %s ]; then a=$(%s host observe %s 2>/dev/null) && case $a in '{'*) printf '%%s' "$a"; exit 0;; esac; fi
b=$(cat /proc/sys/kernel/random/boot_id 2>/dev/null || sysctl -n kern.boottime 2>/dev/null | sed 's/}.*//' | tr -cd '0-9')
printf '{"facts":{"boot":"%%s","release":"none"}}' "$b"`, bin, bin, remote.Quote(string(mustJSON(l))))
}

// observe looks at every work host again, at once, and records what changed.
func (r *Runner) observe(ctx context.Context) error {
	seen, err := r.look(ctx)
	if err != nil {
		return err
	}
	r.mu.Lock()
	changed := map[string]string{}
	for k, v := range seen {
		if was, there := r.facts[k]; there && was != v {
			changed[k] = v
		}
	}
	maps.Copy(r.facts, seen)
	r.mu.Unlock()
	if len(changed) == 0 {
		return nil
	}
	_, err = r.append(record.KindFacts, "", "", "", record.Facts{Values: changed})
	return err
}

// look asks all work hosts and returns their facts under fleet-wide names.
func (r *Runner) look(ctx context.Context) (map[string]string, error) {
	hosts := r.Fleet.WorkHosts()
	answers := make([]map[string]string, len(hosts))
	group, gctx := errgroup.WithContext(ctx)
	group.SetLimit(r.fanOut())
	for i, id := range hosts {
		group.Go(func() (err error) {
			answers[i], err = r.lookAt(gctx, id)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	all := map[string]string{}
	for _, a := range answers {
		maps.Copy(all, a)
	}
	return all, nil
}

func (r *Runner) lookAt(ctx context.Context, id string) (map[string]string, error) {
	l := looking(r.Fleet, id)
	answer, err := r.askHost(ctx, id, l)
	if err != nil {
		return nil, err
	}
	return factsOf(id, l, answer)
}

// askHost returns a host's answer to a live look.
func (r *Runner) askHost(ctx context.Context, id string, l Looking) ([]byte, error) {
	h, err := r.host(ctx, id)
	if err != nil {
		return nil, err
	}
	res, err := h.Run(ctx, r.permit(remote.Command{Script: observeScript(l), Limit: observeLimit}))
	if err != nil {
		return nil, fmt.Errorf("observe host %s: %w", id, withStderr(err, res))
	}
	r.tellStrays(id, res.Stdout)
	return res.Stdout, nil
}

// tellStrays names processes that run and stand in no fleet file, as the engine that an
// edit removed. The fabric tester is gate D's own.
func (r *Runner) tellStrays(id string, answer []byte) {
	var seen Seen
	if json.Unmarshal(answer, &seen) != nil {
		return // the answer is refused where its facts are read
	}
	named := looking(r.Fleet, id).Procs // the look may have been for some of them
	for _, name := range seen.Strays {
		if name != TesterProcess && !slices.Contains(named, name) {
			r.Progress.Note(Step{Title: "host " + id}, clean(name, 128)+" runs and is not in the fleet file; a rollback with the file that names it stops it")
		}
	}
}

// TesterProcess is the name under which gate D runs its tester.
const TesterProcess = "fabric"

// factsOf names a host's answer fleet-wide. A process that it does not mention is gone.
func factsOf(id string, l Looking, answer []byte) (map[string]string, error) {
	var seen Seen
	if err := json.Unmarshal(answer, &seen); err != nil {
		return nil, fmt.Errorf("observe host %s: read its answer: %w", id, err)
	}
	if seen.Facts["boot"] == "" { // an answer that says nothing is none: processes would count as gone
		return nil, fmt.Errorf("observe host %s: read its answer: it names no boot", id)
	}
	facts := map[string]string{}
	for _, p := range l.Procs {
		facts["proc/"+p+"/id"], facts["proc/"+p+"/launch"] = Gone, Gone
		if l.Ready[p] != "" {
			facts["proc/"+p+"/serves"] = Idle
		}
	}
	for k, v := range seen.Facts {
		if strings.HasPrefix(k, "proc/") {
			if _, mine := facts[k]; mine {
				facts[k] = v
			}
			continue
		}
		facts["host/"+id+"/"+k] = v
	}
	return facts, nil
}
