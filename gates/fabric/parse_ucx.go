package fabric

import (
	"errors"
	"fmt"
	"strings"
)

// parseUCX reads the last line of ucx_perftest: "Final:", iterations, three overheads in
// microseconds, average and overall bandwidth in MB/s of 2²⁰ bytes, two message rates.
func parseUCX(b []byte) (reading, error) {
	text := escapes.ReplaceAllString(string(b), "")
	if !strings.Contains(text, "bandwidth (MB/s)") {
		return reading{}, errors.New("read the output of ucx_perftest: no column of bandwidth in MB/s")
	}
	for line := range strings.SplitSeq(text, "\n") {
		rest, ok := strings.CutPrefix(strings.TrimSpace(line), "Final:")
		if !ok {
			continue
		}
		fields := strings.Fields(rest)
		if len(fields) != 8 {
			return reading{}, fmt.Errorf("read the output of ucx_perftest: %d columns, want 8", len(fields))
		}
		if _, err := figures(fields); err != nil {
			return reading{}, fmt.Errorf("read the output of ucx_perftest: %w", err)
		}
		if err := counts(fields[0]); err != nil {
			return reading{}, fmt.Errorf("read the output of ucx_perftest: %w", err)
		}
		overall, err := figures(fields[:6])
		if err == nil {
			err = overrate(overall * 8 * (1 << 20) / 1e9)
		}
		if err != nil {
			return reading{}, fmt.Errorf("read the output of ucx_perftest: %w", err)
		}
		return reading{gbps: overall * 8 * (1 << 20) / 1e9}, nil
	}
	return reading{}, errors.New("read the output of ucx_perftest: no final line")
}
