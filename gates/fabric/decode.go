package fabric

import (
	"fmt"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/record"
)

// UnderDecode is what two hosts carried while their engines decoded, and what decoding lost.
type UnderDecode struct {
	A       string `json:"a"`
	B       string `json:"b"`
	Streams int    `json:"streams"` // TCP streams of a direction
	// Forward is A → B, Back is B → A.
	Forward Loaded    `json:"forward"`
	Back    Loaded    `json:"back"`
	Engines []Decoded `json:"engines"`
	// Loopback says that the way between the two never leaves a machine.
	Loopback bool `json:"loopback,omitempty"`
	// Unreachable says why B's tester could not be asked, "" otherwise.
	Unreachable string `json:"unreachable,omitempty"`
}

// Loaded are Gbit/s of one direction while the other runs too.
type Loaded struct {
	Quiet []float64 `json:"quiet_gbps"`  // nothing decodes: before and after
	Busy  []float64 `json:"decode_gbps"` // the engines decode
}

// Decoded is one engine's part.
type Decoded struct {
	IID      string `json:"iid"`
	Role     string `json:"role,omitempty"` // of a process that has one
	Streams  int    `json:"streams"`
	Requests int    `json:"requests"`
	Tokens   int    `json:"tokens"`
	// Quiet and Busy are seconds a token of one stream, by window: while the link is idle and
	// while it is full. The longest waits for a token stand beside them.
	Quiet        []float64 `json:"quiet_s"`
	Busy         []float64 `json:"transfer_s"`
	QuietLongest float64   `json:"quiet_longest_s"`
	BusyLongest  float64   `json:"transfer_longest_s"`
	// Lent is true for a prefilling process that answers no request alone: it begins the
	// requests of those that decode.
	Lent bool `json:"lent,omitempty"`
	// Failed says why the engine did not decode, "" otherwise.
	Failed string `json:"failed,omitempty"`
}

const (
	decodeStreams = 4   // requests at once of one engine
	decodePrompt  = 32  // tokens of a prompt
	decodeTokens  = 256 // tokens that a request generates
	mostRequests  = 64  // of one stream, one after another
	mostEngines   = 16  // of two hosts
	// leastWindow holds some tokens of a slow engine, mostWindow enough of them.
	leastWindow = 150 * time.Millisecond
	mostWindow  = 500 * time.Millisecond
	busyWindows = 3
	// quietEnds are transfers without decoding, before and again after it.
	quietEnds = 1
)

func decodeKey(p Twosome) record.Key { return record.NewKey("D", "decode", p.A, p.B) }

// decodePairs are measured under decode: where the tester speaks what KV goes over. A pair
// whose hosts carry ranks of other hosts' engines alone has none to ask.
func decodePairs(f fleet.Fleet) []Twosome {
	fab := f.Deploy.Fabric
	if !fab.UnderDecode || fab.Transport != "" && fab.Transport != "tcp" {
		return nil
	}
	var out []Twosome
	for _, p := range pairs(f.EngineHosts()) {
		if len(enginesOf(f, p)) > 0 {
			out = append(out, p)
		}
	}
	return out
}

// enginesOf are the engines that answer on the hosts of a pair.
func enginesOf(f fleet.Fleet, p Twosome) []fleet.Engine {
	var out []fleet.Engine
	for _, e := range f.Engines {
		if h := f.HostOf(e.IID); (h == p.A || h == p.B) && len(out) < mostEngines {
			out = append(out, e)
		}
	}
	return out
}

// decodeStep asks for a pair under decode. Where engines answer in pairs of roles, a prefilling
// one of another host may have to begin the requests.
func decodeStep(f fleet.Fleet, p Twosome) gates.Step {
	fab := f.Deploy.Fabric
	q := DecodeRequest{A: p.A, B: p.B, Address: Address(f, p.B), Streams: fab.Streams, Dialect: f.Engine.Dialect, Model: f.Model, Key: f.Engine.EngineAPIKeyEnv,
		Window: fleet.Duration(min(max(fab.Sample.D()/parts, leastWindow), mostWindow))}
	for _, e := range enginesOf(f, p) {
		q.Engines = append(q.Engines, EngineAt{IID: e.IID, URL: e.URL})
	}
	for _, e := range f.Engines {
		if h := f.HostOf(e.IID); h != p.A && h != p.B && e.Role == "prefill" && f.Engine.Dialect == sglangName {
			q.Others = append(q.Others, EngineAt{IID: e.IID, URL: e.URL})
			break
		}
	}
	s := gates.Step{
		ID: string(decodeKey(p)), Title: fmt.Sprintf("measure %s ↔ %s while engines decode", p.A, p.B), Host: p.A, Effect: gates.Observe, Yields: decodeKey(p),
		Limit: 2 * shortLimit, Needs: []string{testerID(p.B)}, Exclusive: whole(p.A, p.B), InOrder: true, Argv: gates.HostCommand(f, p.A, "fabric-decode", q),
	}
	if q.Key != "" { // the request names the variable, never the key
		s.Secrets = map[string]fleet.SecretRef{q.Key: fleet.SecretRef("env:" + q.Key)}
	}
	return s
}
