package fabric

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// escapes are the colours that a tool may print.
var escapes = regexp.MustCompile("\x1b\\[[0-9;]*[A-Za-z]")

// perftestHead is the line above the figures of the perftest programs.
var perftestHead = regexp.MustCompile(`#bytes\s+#iterations\s+BW peak\[(Gb/sec|MB/sec)\]\s+BW average\[(Gb/sec|MB/sec)\]`)

// parsePerftest reads the table of ib_write_bw and ib_read_bw: one row of bytes,
// iterations, peak, average. MB/sec are of 2²⁰ bytes.
func parsePerftest(b []byte) (reading, error) {
	lines := strings.Split(escapes.ReplaceAllString(string(b), ""), "\n")
	for i, line := range lines {
		head := perftestHead.FindStringSubmatch(line)
		if head == nil {
			continue
		}
		if i+1 >= len(lines) {
			return reading{}, errors.New("read the output of perftest: it ends before its figures")
		}
		fields := strings.Fields(lines[i+1])
		if len(fields) < 4 {
			return reading{}, fmt.Errorf("read the output of perftest: %q where its figures belong", printable(lines[i+1], 100))
		}
		average, err := figures(fields[:4])
		if err != nil {
			return reading{}, fmt.Errorf("read the output of perftest: %w", err)
		}
		if err := counts(fields[0], fields[1]); err != nil {
			return reading{}, fmt.Errorf("read the output of perftest: %w", err)
		}
		// A run by time has no peak, which is printed as 0.
		if peak, _ := strconv.ParseFloat(fields[2], 64); peak != 0 && !(peak >= average*(1-rounding)) {
			return reading{}, fmt.Errorf("read the output of perftest: a peak of %s below an average of %s", printable(fields[2], 32), printable(fields[3], 32))
		}
		r := reading{gbps: average}
		if head[2] == "MB/sec" {
			r.gbps = average * 8 * (1 << 20) / 1e9
		}
		if err := overrate(r.gbps); err != nil {
			return reading{}, fmt.Errorf("read the output of perftest: %w", err)
		}
		return r, nil
	}
	return reading{}, errors.New("read the output of perftest: no table of figures")
}

// rounding is by how much a peak may be printed below its average.
const rounding = 0.01

// counts checks that something was sent: whole numbers above 0.
func counts(fields ...string) error {
	for _, f := range fields {
		if n, err := strconv.ParseUint(f, 10, 63); err != nil || n == 0 {
			return fmt.Errorf("%q where a count of what was sent belongs", printable(f, 32))
		}
	}
	return nil
}

// figures checks that all are numbers and returns the last.
func figures(fields []string) (last float64, err error) {
	for _, f := range fields {
		if last, err = strconv.ParseFloat(f, 64); err != nil {
			return 0, fmt.Errorf("%q is no number", printable(f, 32))
		}
	}
	return last, nil
}
