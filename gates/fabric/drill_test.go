package fabric

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/gates/record"
)

// drillRuns is how many healthy runs the drill makes, five times as many as of each fault;
// drillSample is the sample of a pair in it, one second unless it is set.
const (
	drillRuns   = "NARWHAL_FABRIC_RUNS"
	drillSample = "NARWHAL_FABRIC_SAMPLE"
)

// impairment is a fault of one host's link among healthy ones, and what must be found.
type impairment struct {
	name string
	code string
	does func(w *network, i int)
	undo func(w *network, i int)
}

const (
	drillMbit = 100
	drillMTU  = 9000
)

var impairments = []impairment{
	{"30 % slower", "edge-outlier", func(w *network, i int) { w.rate(i, drillMbit*7/10) }, func(w *network, i int) { w.rate(i, drillMbit) }},
	{"loses 1 %", "edge-lossy", func(w *network, i int) { w.loses(i, 10) }, (*network).losesNothing},
	{"loses 0.5 %", "edge-lossy", func(w *network, i int) { w.loses(i, 5) }, (*network).losesNothing},
	{"takes 1500 bytes", "mtu-differs", func(w *network, i int) { w.takes(i, 1500) }, func(w *network, i int) { w.takes(i, drillMTU) }},
	{"its port takes 1500 bytes", "path-mtu", func(w *network, i int) { w.portTakes(i, 1500) }, func(w *network, i int) { w.portTakes(i, drillMTU) }},
	{"is down", "edge-unreachable", func(w *network, i int) { w.link(i, "down") }, func(w *network, i int) { w.link(i, "up") }},
}

func (w *network) losesNothing(int) { w.ip("netns", "exec", w.inner(), "nft", "flush", "ruleset") }
func (w *network) takes(i, bytes int) {
	w.ip("-n", w.hosts[i].Namespace, "link", "set", "eth1", "mtu", strconv.Itoa(bytes))
}
func (w *network) portTakes(i, bytes int) {
	w.ip("-n", w.inner(), "link", "set", w.port(i), "mtu", strconv.Itoa(bytes))
}
func (w *network) link(i int, state string) {
	w.ip("-n", w.hosts[i].Namespace, "link", "set", "eth1", state)
}

// tells reports whether a finding of this code names a host, or all edges of it.
func (w *network) tells(got []record.Finding, code string, i int) bool {
	id, edges := w.hosts[i].ID, 0
	for _, f := range got {
		if f.Code == code && strings.HasPrefix(f.Message, "edge ") && strings.Contains(f.Message, id) {
			edges++
		}
	}
	return named(got, code, "host "+id) || edges == len(w.hosts)-1
}

// shows logs the evidence of findings.
func (w *network) shows(got []record.Finding) {
	for _, f := range got {
		if raw, ok := w.last[record.Key(f.Evidence)].([]byte); ok {
			w.t.Logf("%s %.2000s", f.Evidence, raw)
		}
	}
}

// load is the machine's, over the last minute.
func load() string {
	b, _ := os.ReadFile("/proc/loadavg")
	first, _, _ := strings.Cut(string(b), " ")
	return first
}

// drilled is the network of a drill, and the number of healthy runs that is asked for.
func drilled(t *testing.T) (*network, int) {
	t.Helper()
	times, err := strconv.Atoi(os.Getenv(drillRuns))
	if err != nil || times < 1 {
		t.Skip(drillRuns + " names no number of runs")
	}
	sample := time.Second
	if v := os.Getenv(drillSample); v != "" {
		if sample, err = time.ParseDuration(v); err != nil {
			t.Fatal(err)
		}
	}
	w := shaped(t, eight, drillMbit, sample)
	w.terse = true
	return w, times
}

// TestFewHealthyRuns is the drill's short form: two runs of short samples, in which what else
// this machine does may show in the rates alone.
func TestFewHealthyRuns(t *testing.T) {
	w := shaped(t, eight, drillMbit, 300*time.Millisecond)
	w.terse = true
	for i := range 2 {
		for _, f := range w.measure(nil) {
			say := t.Errorf
			if slices.Contains(rateCodes, f.Code) {
				say = t.Logf
			}
			say("run %d, load %s: found %s %s", i, load(), f.Code, f.Message)
		}
	}
}

// TestDrillHealthy measures eight hosts in namespaces again and again, and finds nothing.
func TestDrillHealthy(t *testing.T) {
	w, times := drilled(t)
	failed, began := 0, time.Now()
	for i := range times {
		if got := w.measure(nil); len(got) > 0 {
			failed++
			t.Errorf("run %d without a fault, load %s: found %v", i, load(), messages(got))
			w.shows(got)
		}
	}
	t.Logf("%d healthy runs in %.0f s, load %s: %d found something", times, time.Since(began).Seconds(), load(), failed)
}

// TestDrillFaults impairs one host's link among the eight, each host in turn, and wants that
// host named and no other.
func TestDrillFaults(t *testing.T) {
	w, times := drilled(t)
	for _, f := range impairments {
		each := max(1, times/5)
		if f.code == "edge-unreachable" { // each pair waits for its connection
			each = (each + 4) / 5
		}
		w.fleet.Deploy.Fabric.Incast = f.code == "edge-outlier" // all to one is no part of the others
		began, missed, more := time.Now(), 0, 0
		for run := range each {
			i := run % eight
			what := w.hosts[i].ID + ", " + f.name + ", run " + strconv.Itoa(run) + ", load " + load()
			f.does(w, i)
			got := w.measure(nil)
			f.undo(w, i)
			if !w.tells(got, f.code, i) {
				missed++
				t.Errorf("%s: found %v", what, messages(got))
			}
			for _, x := range got {
				if x.Host != w.hosts[i].ID && !strings.Contains(x.Message, w.hosts[i].ID) {
					more++
					t.Errorf("%s: also found %s %s", what, x.Code, x.Message)
					w.shows([]record.Finding{x})
				}
			}
		}
		t.Logf("%s: %d runs in %.0f s, load %s: %d missed, %d others found", f.name, each, time.Since(began).Seconds(), load(), missed, more)
	}
}
