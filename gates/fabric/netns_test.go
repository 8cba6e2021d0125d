package fabric

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/fleet/remote/netns"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/record"
)

// helper makes the test's binary what the host verbs are: one request, one answer, in a
// host's namespace.
const helper = "NARWHAL_TEST_FABRIC_HELPER"

func TestMain(m *testing.M) {
	verb := os.Getenv(helper)
	if verb == "" {
		os.Exit(m.Run())
	}
	err := help(verb)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func help(verb string) error {
	ctx := context.Background()
	if verb == "fabric-serve" {
		return Serve(ctx, os.Args[1], "")
	}
	verbs := HostVerbs()
	verbs["look"] = gates.Answer(func(_ context.Context, l gates.Looking) (gates.Seen, error) { return gates.Look(l) })
	answer, err := verbs[verb](ctx, json.RawMessage(os.Args[1]))
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(answer)
}

// network is hosts in namespaces whose inner links are shaped.
type network struct {
	t     *testing.T
	hosts []netns.HostInfo
	fleet fleet.Fleet
	terse bool               // logs no evidence
	last  map[record.Key]any // evidence of the latest run
}

const testerPort = 18515

// shaped builds n hosts whose inner link sends mbit Mbit/s and takes 9000 bytes, with a
// tester each.
func shaped(t *testing.T, n, mbit int, sample time.Duration) *network {
	t.Helper()
	if testing.Short() {
		t.Skip("starts processes")
	}
	hosts := netns.Up(t, n)[:n]
	w := &network{t: t, hosts: hosts, fleet: fleet.Fleet{Deploy: &fleet.Deploy{Hosts: map[string]fleet.Host{}, Engines: map[string]fleet.Place{},
		Fabric: fleet.Fabric{Interface: "eth1", PromptTokens: 16, HandoffsPerS: 1, Headroom: 1, MinGbps: float64(mbit) / 8000, Sample: fleet.Duration(sample), Streams: 2,
			Port: testerPort, Outlier: 0.2, Incast: true}}}}
	w.ip("-n", w.inner(), "link", "set", "inner", "mtu", "9000")
	for i, h := range hosts {
		w.ip("-n", h.Namespace, "link", "set", "eth1", "mtu", "9000")
		w.ip("-n", w.inner(), "link", "set", w.port(i), "mtu", "9000")
		w.rate(i, mbit)
		w.fleet.Deploy.Hosts[h.ID] = fleet.Host{Root: "/opt/n", FabricAddress: h.Inside}
		w.fleet.Deploy.Engines["e"+h.ID] = fleet.Place{Host: h.ID}
		w.fleet.Engines = append(w.fleet.Engines, fleet.Engine{IID: "e" + h.ID, URL: "http://" + h.Inside + ":8100"})
		c := w.in(h, "fabric-serve", h.Inside+":"+strconv.Itoa(testerPort))
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = c.Process.Kill()
			_ = c.Wait()
		})
	}
	return w
}

// inner is the namespace of the switch, port its end of a host's link.
func (w *network) inner() string {
	return strings.TrimSuffix(w.hosts[0].Namespace, w.hosts[0].ID) + "switch"
}
func (w *network) port(i int) string { return fmt.Sprintf("in%d", i+1) }

func (w *network) ip(args ...string) {
	w.t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		w.t.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// rate shapes both ways of a host's link.
func (w *network) rate(i, mbit int) {
	w.t.Helper()
	for _, at := range []struct{ ns, dev string }{{w.hosts[i].Namespace, "eth1"}, {w.inner(), w.port(i)}} {
		argv := []string{"netns", "exec", at.ns, "tc", "qdisc", "replace", "dev", at.dev, "root", "tbf", "rate", strconv.Itoa(mbit) + "mbit", "burst", "128kb", "latency", "25ms"}
		w.ip(argv...)
	}
}

// loses drops that part of what a host sends, in a thousand, where it enters the switch.
func (w *network) loses(i, permille int) {
	w.t.Helper()
	if _, err := exec.LookPath("nft"); err != nil {
		if os.Getenv("NARWHAL_REQUIRE_NETNS") == "1" {
			w.t.Fatal("nft is required, and not installed")
		}
		w.t.Skip("nft is not installed")
	}
	rules := fmt.Sprintf("table netdev drill { chain %[1]s { type filter hook ingress device %[1]s priority 0; numgen random mod 1000 < %[2]d drop; }; }\n", w.port(i), permille)
	c := exec.Command("ip", "netns", "exec", w.inner(), "nft", "-f", "-")
	c.Stdin = strings.NewReader(rules)
	if out, err := c.CombinedOutput(); err != nil {
		w.t.Fatalf("nft: %v: %s", err, out)
	}
}

func (w *network) in(h netns.HostInfo, verb, arg string) *exec.Cmd {
	self, err := os.Executable()
	if err != nil {
		w.t.Fatal(err)
	}
	c := exec.Command("ip", "netns", "exec", h.Namespace, self, arg)
	c.Env = append(os.Environ(), helper+"="+verb)
	return c
}

// ask runs a host verb and returns its answer.
func (w *network) ask(h netns.HostInfo, verb string, q any) []byte {
	b, err := json.Marshal(q)
	if err != nil {
		w.t.Fatal(err)
	}
	var errs strings.Builder
	c := w.in(h, verb, string(b))
	c.Stderr = &errs
	out, err := c.Output()
	if err != nil {
		w.t.Errorf("%s on %s: %v: %s", verb, h.ID, err, errs.String())
		return nil
	}
	return out
}

func (w *network) host(id string) netns.HostInfo {
	for _, h := range w.hosts {
		if h.ID == id {
			return h
		}
	}
	w.t.Fatal("no host " + id)
	return netns.HostInfo{}
}

// measure runs the rounds and the incast, and judges.
func (w *network) measure(only func(Twosome) bool) []record.Finding {
	w.t.Helper()
	fab := w.fleet.Deploy.Fabric
	b, err := BudgetOf(fab, layout)
	if err != nil {
		w.t.Fatal(err)
	}
	e := map[record.Key]any{budgetKey: b, cacheKey(w.fleet): layout}
	var mu sync.Mutex
	keep := func(k record.Key, answer []byte) {
		mu.Lock()
		defer mu.Unlock()
		if answer != nil {
			e[k] = answer
		}
	}
	for _, r := range Rounds(w.fleet.EngineHosts()) {
		var wg sync.WaitGroup
		for _, p := range r {
			if only != nil && !only(p) {
				continue
			}
			wg.Go(func() {
				keep(pairKey(p), w.ask(w.host(p.A), "fabric-pair", PairRequest{A: p.A, B: p.B, Address: Address(w.fleet, p.B), Streams: fab.Streams, For: fab.Sample}))
			})
		}
		wg.Wait()
	}
	if only == nil && fab.Incast {
		for _, h := range w.fleet.EngineHosts() {
			q := IncastRequest{Host: h, From: map[string]string{}, For: fab.Sample / parts * incastRepeats, Pulls: 1}
			for _, o := range w.fleet.EngineHosts() {
				if o != h {
					q.From[o] = Address(w.fleet, o)
				}
			}
			keep(incastKey(h), w.ask(w.host(h), "fabric-incast", q))
		}
	}
	w.last = e
	v := view(w.t, w.fleet, e)
	if testing.Verbose() && !w.terse {
		for _, k := range (Gate{}).Expect(w.fleet) {
			if raw, ok := e[k].([]byte); ok {
				w.t.Logf("%s %.1500s", k, raw)
			}
		}
	}
	return Gate{}.Judge(v)
}

// rateCodes are findings that other work on this machine makes of healthy links in short samples.
var rateCodes = []string{"edge-outlier", "incast-outlier", "incast-slow", "edge-retransmits", "edge-slow", "edge-duplex"}

// TestFaultsAreNamed has a host at a third of the rate, one that loses and one with a small
// interface among five on real links: each is named. Then a port of the switch takes
// less than both hosts, one is down, and a route leads over another interface.
func TestFaultsAreNamed(t *testing.T) {
	w := shaped(t, 5, 150, 800*time.Millisecond)
	w.rate(1, 50)
	w.loses(2, 30)
	w.ip("-n", w.hosts[3].Namespace, "link", "set", "eth1", "mtu", "1500")
	got := w.measure(nil)
	for host, code := range map[string]string{"alpha-2": "edge-outlier", "alpha-3": "edge-lossy", "alpha-4": "mtu-differs"} {
		if !named(got, code, "host "+host) {
			t.Errorf("%s of %s is not found", code, host)
		}
	}
	allowed := []string{"edge-outlier alpha-2", "edge-lossy alpha-3", "mtu-differs alpha-4", "incast-outlier alpha-2", "edge-retransmits alpha-3", "edge-outlier alpha-3", "incast-unfair alpha-3"}
	// Other tests run beside this one on few processors: what that does to the rates of
	// healthy links in these short samples is logged, and the drill's to judge.
	for _, f := range got {
		switch {
		case slices.Contains(allowed, f.Code+" "+f.Host):
		case slices.Contains(rateCodes, f.Code):
			t.Logf("also found %s: %s", f.Code, f.Message)
		default:
			t.Errorf("also found %s: %s", f.Code, f.Message)
		}
	}
	only := func(a, b string) func(Twosome) bool { return func(p Twosome) bool { return p == Twosome{a, b} } }
	w.fleet.Deploy.Fabric.Sample = fleet.Duration(300 * time.Millisecond)
	w.ip("-n", w.inner(), "link", "set", w.port(4), "mtu", "1500")
	got = w.measure(only("alpha-1", "alpha-5"))
	if !named(got, "path-mtu", "edge alpha-1 → alpha-5") || !named(got, "path-mtu", "edge alpha-5 → alpha-1") {
		t.Errorf("a black hole: found %v", messages(got))
	}
	w.ip("-n", w.hosts[0].Namespace, "link", "set", "eth1", "down")
	if got = w.measure(only("alpha-1", "alpha-5")); !named(got, "edge-unreachable", "edge alpha-1 → alpha-5") || len(got) != 1 {
		t.Errorf("a link that is down: found %v", messages(got))
	}
	w.ip("-n", w.hosts[0].Namespace, "link", "set", "eth1", "up")
	w.ip("-n", w.hosts[0].Namespace, "route", "add", w.hosts[1].Inside+"/32", "via", w.hosts[1].Address, "dev", "eth0")
	got = w.measure(only("alpha-1", "alpha-2"))
	if !named(got, "edge-interface", "edge alpha-1 → alpha-2") || !named(got, "edge-asymmetric", "edge alpha-1 → alpha-2") {
		t.Errorf("another way: found %v", messages(got))
	}
}
