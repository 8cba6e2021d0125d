package process

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
)

// clockTicks are those of a second in /proc, on every architecture that Linux runs on today.
const clockTicks = 100

// StartedAt is when a process of this host began, in seconds since 1970, by its start ticks.
func StartedAt(ticks uint64) (float64, error) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, fmt.Errorf("read process start: %w", err)
	}
	return startedAt(b, ticks)
}

func startedAt(stat []byte, ticks uint64) (float64, error) {
	for line := range bytes.Lines(stat) {
		if f := bytes.Fields(line); len(f) == 2 && string(f[0]) == "btime" {
			boot, err := strconv.ParseUint(string(f[1]), 10, 40)
			if err != nil || boot == 0 {
				break
			}
			return float64(boot) + float64(ticks)/clockTicks, nil
		}
	}
	return 0, errors.New("read process start: /proc/stat names no time of boot")
}
