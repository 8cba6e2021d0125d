package fabric

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"
)

// Pair is what was measured between two hosts.
type Pair struct {
	A       string  `json:"a"`
	B       string  `json:"b"`
	Tool    string  `json:"tool"`
	Streams int     `json:"streams"`
	RTT     float64 `json:"rtt_us"` // the least of several round trips, microseconds
	EndA    End     `json:"end_a"`
	EndB    End     `json:"end_b"`
	// Forward is A → B, Back is B → A.
	Forward Direction `json:"forward"`
	Back    Direction `json:"back"`
	// CountersA and CountersB are the counters of errors, drops, pauses and marks of each
	// end's interface that rose meanwhile, by how much.
	CountersA map[string]int64 `json:"counters_a,omitempty"`
	CountersB map[string]int64 `json:"counters_b,omitempty"`
	// Unreachable says why nothing could be measured, "" otherwise.
	Unreachable string `json:"unreachable,omitempty"`
	// Fingerprint names route, interfaces, tool and parameters. Samples of one fingerprint
	// can be compared.
	Fingerprint string `json:"fingerprint"`
	// History are earlier samples of the same fingerprint, the latest last.
	History []Past `json:"history,omitempty"`
}

// End is how one host sees the other.
type End struct {
	Route     string `json:"route"` // "interface source" of the way to the other end
	Gateway   string `json:"gateway,omitempty"`
	MTU       int    `json:"mtu"`                  // of the interface, bytes
	SpeedMbps int    `json:"speed_mbps,omitempty"` // of the interface, 0 = it does not say
	// Seen is the address from which the other end's connection came here.
	Seen string `json:"seen,omitempty"`
}

// Direction is one directed edge.
type Direction struct {
	// Together are Gbit/s of repeats with both directions at once, Alone of those with one.
	Together []float64 `json:"together_gbps"`
	Alone    []float64 `json:"alone_gbps"`
	// Gbps and Spread are the median of Together and its scaled median deviation.
	Gbps      float64 `json:"gbps"`
	Spread    float64 `json:"spread_gbps"`
	AloneGbps float64 `json:"alone_median_gbps"`
	Bytes     int64   `json:"bytes"`
	// Segments and Retransmits are of the sender's sockets.
	Segments    int64 `json:"segments"`
	Retransmits int64 `json:"retransmits"`
	// PathMTU is the largest datagram that arrived unfragmented, 0 when none did.
	PathMTU int `json:"path_mtu"`
	// Datagrams were sent one by one on the idle link; Arrived came, Overrun were thrown away
	// by the receiver's own socket or kernel.
	Datagrams int `json:"datagrams"`
	Arrived   int `json:"arrived"`
	Overrun   int `json:"overrun,omitempty"`
	// Curve is the least time of one message by its size.
	Curve []Point `json:"curve"`
}

// Point is one size of the curve.
type Point struct {
	Bytes   int64   `json:"bytes"`
	Seconds float64 `json:"seconds"`
}

// Past is an earlier sample.
type Past struct {
	Fingerprint string    `json:"fingerprint"`
	Time        time.Time `json:"time"`
	Forward     float64   `json:"forward_gbps"`
	Back        float64   `json:"back_gbps"` // 0 of a tool's sample, which is one direction
}

// Lost are datagrams that left and neither arrived nor were thrown away at the end.
func (d Direction) Lost() int { return max(0, d.Datagrams-d.Arrived-d.Overrun) }

// Of returns a pair's direction with the sender's end and the receiver's.
func (p Pair) Of(e Edge) (d Direction, from, to End) {
	if e.From == p.A {
		return p.Forward, p.EndA, p.EndB
	}
	return p.Back, p.EndB, p.EndA
}

// fingerprint is the digest of everything that must be equal for two samples to compare.
func (p Pair) fingerprint(q PairRequest) string {
	return digest(p.A, p.B, p.Tool, q.Streams, q.For, q.Address, p.EndA.Route, p.EndA.Gateway, p.EndA.MTU, p.EndA.SpeedMbps,
		p.EndB.Route, p.EndB.Gateway, p.EndB.MTU, p.EndB.SpeedMbps)
}

// digest identifies values by the SHA-256 of their JSON, "" for what has none.
func digest(of ...any) string {
	b, err := json.Marshal(of)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// Incast is what a host took in while all others sent to it at once.
type Incast struct {
	Host   string    `json:"host"`
	Repeat []float64 `json:"repeat_gbps"` // sum over the senders, by repeat
	Gbps   float64   `json:"gbps"`        // median
	Spread float64   `json:"spread_gbps"`
	// Seconds is the length of a repeat.
	Seconds float64 `json:"repeat_s"`
	// Shares are Gbit/s by sender, the best of the repeats.
	Shares      map[string]float64 `json:"shares_gbps"`
	Segments    int64              `json:"segments"`
	Retransmits int64              `json:"retransmits"`
	Counters    map[string]int64   `json:"counters,omitempty"` // of the receiver's interface
	Interface   string             `json:"interface"`
	// Missing are senders that could not be reached, with the reason.
	Missing map[string]string `json:"missing,omitempty"`
}

// ToolSample is a directed edge as another tool measured it.
type ToolSample struct {
	Tool    string   `json:"tool"`
	Version string   `json:"version,omitempty"`
	From    string   `json:"from"`
	To      string   `json:"to"`
	Argv    []string `json:"argv"` // of the run whose rate is Gbps
	// Gbps and Spread are the median of that run's repeats and its scaled median deviation.
	Gbps        float64 `json:"gbps"`
	Spread      float64 `json:"spread_gbps,omitempty"`
	Retransmits int64   `json:"retransmits,omitempty"`
	// Runs are all runs of a tool that takes message sizes.
	Runs []ToolRates `json:"runs,omitempty"`
	// NotMeasured are the parts of the gate's promise that the tool cannot measure, in words.
	NotMeasured []string `json:"not_measured,omitempty"`
	// Absent says on which host the tool is not installed where the fleet leaves that open; ""
	// otherwise.
	Absent string `json:"absent,omitempty"`
	// Fingerprint names tool, commands and both ends. Samples of one fingerprint can be compared.
	Fingerprint string `json:"fingerprint,omitempty"`
	// History are earlier samples of the same fingerprint, the latest last.
	History []Past `json:"history,omitempty"`
}

// ToolRates is one way of running a tool.
type ToolRates struct {
	Bytes int64 `json:"bytes"` // of one message
	// Both is both directions at once; the rates are the sum of the two.
	Both   bool      `json:"both,omitempty"`
	Argv   []string  `json:"argv"`
	Repeat []float64 `json:"repeat_gbps"`
	Gbps   float64   `json:"gbps"` // median
}
