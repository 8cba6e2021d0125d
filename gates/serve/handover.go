package serve

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/record"
)

const (
	// succeedWithin is what a standby may take to admit requests once the router ends.
	succeedWithin = fleet.Duration(20 * time.Second)
	// refusedWithin is for how long nobody may admit requests in a planned hand-over.
	refusedWithin = time.Second
)

// mode is how gate G brings the router up.
type mode int

const (
	modeRestart  mode = iota // what runs is drained and ended, then the router starts
	modeKeep                 // what runs is what the fleet file says
	modeHandOver             // the standby, started anew, takes the router's place and gives it back
	modeTakeBack             // the standby serves already, and gives the router's place back
)

// starts are the surfaces that a plan may start.
type starts struct {
	router, behind, standby parts
	mode                    mode
}

func plannedStarts(v gates.View) (st starts, err error) {
	f := v.Fleet
	if st.router, err = partsOf(v, theRouter(f)); err != nil || standsBy(f) == nil {
		st.mode = st.way(v)
		return st, err
	}
	if st.behind, err = partsOf(v, theRouterBehind(f)); err != nil {
		return st, err
	}
	st.standby, err = partsOf(v, theStandby(f))
	st.mode = st.way(v)
	return st, err
}

// way decides from what runs. Only a router that shares engines, contract, lease and addresses
// with the one before can go on with its requests.
func (st starts) way(v gates.View) mode {
	now := v.Facts["proc/"+routerName+"/launch"]
	standbyServes := serves(v, standbyName) && !serves(v, routerName)
	same := standsBy(v.Fleet) != nil && v.Bound(standbyKey, "fleet/succession") == v.Facts["fleet/succession"]
	switch {
	case runs(v, routerName) && (now == st.router.launch || now == st.behind.launch) && !standbyServes:
		return modeKeep
	case same && standbyServes:
		return modeTakeBack
	case same && serves(v, routerName) && runs(v, standbyName):
		return modeHandOver
	}
	return modeRestart
}

// serves reports whether a process was seen to admit requests.
func serves(v gates.View, name string) bool {
	return runs(v, name) && v.Facts["proc/"+name+"/serves"] == gates.Serves
}

// startSteps bring the router up, and the standby behind it. router is true when what rests
// on the router is made again.
func startSteps(v gates.View) (steps []gates.Step, router bool, err error) {
	stands := standsBy(v.Fleet) != nil
	router = v.Wants(routerKey) || v.Wants(routerDrainKey) || stands && serves(v, standbyName) && !serves(v, routerName)
	standby := stands && (router || v.Wants(standbyKey) || v.Wants(standbyDrainKey))
	ready := readyStep(v.Fleet)
	last := standingStep(readyWithin(v.Fleet), "")
	if !router && !standby {
		if v.Wants(readyKey) {
			steps = append(steps, ready)
		}
		if stands && v.Wants(standingKey) {
			steps = append(steps, last)
		}
		return steps, false, nil
	}
	st, err := plannedStarts(v)
	if err != nil {
		return nil, router, err
	}
	switch {
	case router && st.mode == modeHandOver:
		steps = st.handOver(v)
	case router && st.mode == modeTakeBack:
		steps = st.takeBack(v)
	default:
		steps = st.plain(v, router, standby)
	}
	return steps, router, nil
}

func readyStep(f fleet.Fleet) gates.Step {
	within := readyWithin(f)
	return local("ready", "wait until the router is ready", readyKey, "ready", within+shortLimit, readyArgs{Within: within})
}

// plain ends what is to be replaced, the standby first: it would take the router's place.
func (st starts) plain(v gates.View, router, standby bool) (steps []gates.Step) {
	f, start := v.Fleet, st.router.start
	var stay, wait []string
	if st.mode == modeKeep {
		stay, wait = []string{v.Facts["proc/"+routerName+"/launch"]}, []string{st.standby.launch}
		if stay[0] == st.behind.launch {
			start = st.behind.start
		}
	}
	if standby && (router || v.Wants(standbyDrainKey)) {
		steps = append(steps, drainStep(v, standbyName, wait, ""))
	}
	if router {
		steps = append(append(steps, st.router.files...), drainStep(v, routerName, stay, ""), start)
	}
	if router || v.Wants(readyKey) {
		steps = append(steps, readyStep(f))
	}
	if standby {
		steps = append(append(steps, st.standby.files...), st.standby.start)
	}
	if standby || standsBy(f) != nil && v.Wants(standingKey) {
		steps = append(steps, standingStep(readyWithin(f), ""))
	}
	return steps
}

// handOver starts the standby anew, lets it take the router's place, starts the router behind
// it, and gives the place back. Somebody admits requests all the time.
func (st starts) handOver(v gates.View) []gates.Step {
	f := v.Fleet
	anew := st.standby.start
	anew.ID, anew.Title, anew.Yields = "G/standby-anew", anew.Title+" anew", ""
	steps := append(append([]gates.Step{}, st.standby.files...), anew, standingStep(readyWithin(f), routerName))
	steps = append(steps, st.router.files...)
	s := standsBy(f)
	steps = append(steps, drainStep(v, routerName, nil, reachedAt(f, s.Host, s.Listen, f.Deploy.Router.Host)))
	steps = append(append(steps, st.giveBack(v)...), st.standby.start)
	return append(steps, standingStep(readyWithin(f), ""))
}

// takeBack starts the router behind a standby that serves, and gives the place back.
func (st starts) takeBack(v gates.View) []gates.Step {
	steps := append(append([]gates.Step{}, st.router.files...), drainStep(v, routerName, nil, ""))
	steps = append(append(steps, st.giveBack(v)...), st.standby.files...)
	return append(steps, st.standby.start, standingStep(readyWithin(v.Fleet), ""))
}

// giveBack brings the router behind the standby that serves, and changes their places.
func (st starts) giveBack(v gates.View) []gates.Step {
	f := v.Fleet
	return []gates.Step{st.behind.start, standingStep(readyWithin(f), standbyName), drainStep(v, standbyName, nil, primary(f)), readyStep(f)}
}

// drainStep ends a surface, unless it was launched as one of keep; successor takes over meanwhile.
func drainStep(v gates.View, name string, keep []string, successor string) gates.Step {
	f, host, key, within := v.Fleet, v.Fleet.Deploy.Router.Host, routerDrainKey, gates.RouterGrace(v.Fleet)
	if name == standbyName {
		host, key = standsBy(f).Host, standbyDrainKey
	}
	q := gates.DrainRequest{Root: f.Deploy.Hosts[host].Root, Name: name, Within: within, Journal: gates.JournalOf(name), Keep: keep, Successor: successor}
	s := gates.Step{ID: "G/" + name + "-drain", Title: "drain and end the " + name + " before, on " + host, Host: host, Effect: gates.Mutate, Yields: key, Limit: within + shortLimit,
		Check: gates.HostCommand(f, host, "absent", gates.StatusRequest{Root: q.Root, Name: name})}
	if successor != "" {
		q.SucceedWithin, s.Limit = succeedWithin, s.Limit+succeedWithin
		s.Title = "hand over from the " + name + " on " + host
	}
	if runs(v, name) && len(keep) == 0 {
		s.Effect = gates.Disrupt
	}
	s.Argv = gates.HostCommand(f, host, "drain", q)
	return s
}

// judgeDrains checks how what served before ended, and who took over.
func judgeDrains(v gates.View) (out []record.Finding) {
	hosts := drained(v.Fleet)
	for _, key := range slices.Sorted(maps.Keys(hosts)) {
		host := hosts[key]
		var d gates.Drained
		if v.Decode(key, &d) != nil {
			continue
		}
		add := func(code, want, got, hint string, note bool) {
			out = append(out, record.Finding{Code: code, Host: host, Want: want, Got: got, Evidence: string(key), Hint: hint, Note: note, Message: fmt.Sprintf("%s: got %s, want %s", clean(d.Name, 40), got, want)})
		}
		grace := "serving.graceful_timeout_s is what requests get to end"
		switch s := d.Succeeded; {
		case s == nil:
		case !s.Ready:
			add("handover-none", "the other router to admit requests", fmt.Sprintf("%.200q after %d ms", s.Reason, s.GapMS), "run again: the router is started; the log of the other one, in its host's run folder, tells why it did not take over", false)
		case s.GapMS > refusedWithin.Milliseconds():
			add("handover-slow", "at most "+refusedWithin.String()+" without admission", fmt.Sprintf("%d ms", s.GapMS), "see the load of both hosts and the lease's store, then --again G", false)
		}
		switch {
		case d.Killed:
			add("drain-killed", "an orderly end", "KILL after the limit", grace+"; its log lies in its host's run folder", true)
		case d.Cut != nil && *d.Cut > 0:
			add("drain-cut", "0 requests cut by the limit", fmt.Sprint(*d.Cut), grace, true)
		case d.Cut == nil && d.Was && !d.Kept:
			add("drain-uncounted", "a journal that tells of cut requests", "none that can be read", "see the disk of its host", true)
		}
	}
	return out
}

// drained are the keys of drains with the hosts.
func drained(f fleet.Fleet) map[record.Key]string {
	out := map[record.Key]string{routerDrainKey: f.Deploy.Router.Host}
	if s := standsBy(f); s != nil {
		out[standbyDrainKey] = s.Host
	}
	return out
}
