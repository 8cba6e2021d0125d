package fabric

import (
	"encoding/json"
	"errors"
	"fmt"
)

// parseIperf reads the JSON that iperf3 prints at its end (seen with 3.1 to 3.16). The rate
// is what the receiver counted.
func parseIperf(b []byte) (reading, error) {
	var out struct {
		Error string `json:"error"`
		Start struct {
			Version string `json:"version"`
			Test    struct {
				Protocol string `json:"protocol"`
			} `json:"test_start"`
		} `json:"start"`
		End struct {
			Sent struct {
				Retransmits int64 `json:"retransmits"`
			} `json:"sum_sent"`
			Received struct {
				Seconds float64 `json:"seconds"`
				Bytes   float64 `json:"bytes"`
				Rate    float64 `json:"bits_per_second"`
			} `json:"sum_received"`
		} `json:"end"`
	}
	if err := json.Unmarshal(b, &out); err != nil {
		return reading{}, fmt.Errorf("read the output of iperf3: %w", err)
	}
	r := out.End.Received
	switch {
	case out.Error != "":
		return reading{}, fmt.Errorf("iperf3 says: %s", printable(out.Error, 300))
	case out.Start.Test.Protocol != "TCP":
		return reading{}, fmt.Errorf("read the output of iperf3: protocol %q, want TCP", printable(out.Start.Test.Protocol, 16))
	case r.Seconds <= 0 || r.Bytes <= 0:
		return reading{}, errors.New("read the output of iperf3: the receiver counts nothing")
	case out.End.Sent.Retransmits < 0:
		return reading{}, errors.New("read the output of iperf3: less than no retransmits")
	}
	if counted := 8 * r.Bytes / r.Seconds; r.Rate < 0.9*counted || r.Rate > 1.1*counted {
		return reading{}, errors.New("read the output of iperf3: its rate is not its bytes in its seconds")
	}
	got := reading{gbps: r.Rate / 1e9, retransmits: out.End.Sent.Retransmits, version: printable(out.Start.Version, 64)}
	if err := overrate(got.gbps); err != nil {
		return reading{}, fmt.Errorf("read the output of iperf3: %w", err)
	}
	return got, nil
}
