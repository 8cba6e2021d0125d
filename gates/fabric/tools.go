package fabric

import (
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
)

// tool is another program that measures a directed edge: how its two ends are called and
// how its output is read. Its names are those of the programs.
type tool struct {
	server func(toolCall) []string
	client func(toolCall) []string
	parse  func([]byte) (reading, error)
	sized  bool     // sends messages of a size, and so is run with several
	duplex bool     // can send both ways at once, and then tells the sum
	lacks  []string // what of gate D's promise it cannot measure
}

// toolCall is what the two commands of a tool depend on.
type toolCall struct {
	From, To string // addresses
	Port     int
	Streams  int
	For      time.Duration
	Bytes    int64  // of one message
	Both     bool   // both directions at once
	Device   string // RDMA device and port, "mlx5_0:1"
	GID      int    // index, −1 = the tool's choice
}

// reading is what a tool's output says.
type reading struct {
	gbps        float64
	retransmits int64
	version     string
}

const (
	toolIperf = "iperf3"
	toolWrite = "ib_write_bw"
	toolRead  = "ib_read_bw"
	toolUCX   = "ucx_perftest"
)

var tools = map[string]tool{
	toolIperf: {
		server: func(c toolCall) []string {
			return []string{toolIperf, "--server", "--one-off", "--bind", c.To, "--port", strconv.Itoa(c.Port)}
		},
		client: func(c toolCall) []string {
			return []string{toolIperf, "--client", c.To, "--bind", c.From, "--port", strconv.Itoa(c.Port), "--parallel", strconv.Itoa(c.Streams),
				"--omit", "1", "--time", seconds(c.For), "--json"}
		},
		parse: parseIperf,
	},
	toolWrite: perftest(toolWrite),
	toolRead:  perftest(toolRead),
	toolUCX: {
		server: func(c toolCall) []string { return []string{toolUCX, "-p", strconv.Itoa(c.Port)} },
		client: func(c toolCall) []string {
			return []string{toolUCX, c.To, "-p", strconv.Itoa(c.Port), "-t", "ucp_put_bw", "-s", strconv.FormatInt(c.Bytes, 10), "-n", strconv.FormatInt(iterations(c.Bytes), 10), "-w", "50", "-f"}
		},
		parse: parseUCX, sized: true, lacks: append([]string{"both directions at once"}, lacking...),
	},
}

// lacking is what a tool that fills the way between two ends cannot tell.
var lacking = []string{"the time of one message on an idle link", "all hosts sending to one", "the edge while engines decode"}

func perftest(name string) tool {
	common := func(c toolCall, bind string) []string {
		argv := []string{name, "-p", strconv.Itoa(c.Port), "-s", strconv.FormatInt(c.Bytes, 10), "-D", seconds(c.For), "-q", strconv.Itoa(c.Streams), "-F", "--report_gbits", "--bind_source_ip", bind}
		if c.Both {
			argv = append(argv, "-b")
		}
		if device, port, ok := cut(c.Device, ':'); ok {
			argv = append(argv, "-d", device, "-i", port)
		} else if c.Device != "" {
			argv = append(argv, "-d", c.Device)
		}
		if c.GID >= 0 {
			argv = append(argv, "-x", strconv.Itoa(c.GID))
		}
		if ip := net.ParseIP(c.To); ip != nil && ip.To4() == nil {
			argv = append(argv, "--ipv6-addr", "--ipv6")
		}
		return argv
	}
	return tool{
		server: func(c toolCall) []string { return common(c, c.To) },
		client: func(c toolCall) []string { return append(common(c, c.From), c.To) },
		parse:  parsePerftest, sized: true, duplex: true, lacks: append([]string{"each direction's share while both run"}, lacking...),
	}
}

func cut(s string, sep byte) (before, after string, ok bool) {
	for i := range len(s) {
		if s[i] == sep {
			return s[:i], s[i+1:], true
		}
	}
	return s, "", false
}

// seconds is a whole number, at least 1.
func seconds(d time.Duration) string {
	return strconv.Itoa(max(1, int(d.Round(time.Second)/time.Second)))
}

// toolsOf names the tools that measure a fleet's edges beside the tester.
func toolsOf(fab fleet.Fabric) []string {
	switch fab.Transport {
	case "rdma":
		return []string{toolWrite, toolRead}
	case "ucx":
		return []string{toolUCX}
	}
	if fab.Tool == toolIperf || fab.Tool == toolAuto {
		return []string{toolIperf}
	}
	return nil
}

// toolAuto lets iperf3 measure every edge both of whose hosts have it.
const toolAuto = "auto"

// optional tells of a tool that a host may lack.
func optional(fab fleet.Fabric, name string) bool { return name == toolIperf && fab.Tool == toolAuto }

// callOf fills in a tool's call for one edge.
func callOf(f fleet.Fleet, e Edge) toolCall {
	fab := f.Deploy.Fabric
	c := toolCall{To: f.FabricAddress(e.To), Port: ToolPort(f, e.To), Streams: fab.Streams, For: fab.Sample.D(), Bytes: mainBytes, Device: fab.Device, GID: -1}
	if fab.GIDIndex != nil {
		c.GID = *fab.GIDIndex
	}
	if e.From != "" {
		c.From = f.FabricAddress(e.From)
	}
	return c
}

// ToolPort is where the server of another tool listens on a host: beside the tester.
func ToolPort(f fleet.Fleet, host string) int { return port(f, host) + 1 }

// overrate refuses rates that no link has.
func overrate(gbps float64) error {
	if !(gbps > 0) || gbps > 1e5 {
		return fmt.Errorf("a rate of %g Gbit/s", gbps)
	}
	return nil
}
