package fabric

import (
	"bytes"
	"os"
	"strconv"
)

// softnetFile is where Linux counts, a line a processor, what the network gave it.
const softnetFile = "/proc/net/softnet_stat"

// shedByKernel is how many packets this host's kernel took from the network and threw away
// because its processors were busy; 0 where it does not say. Such a loss is the host's, not
// the link's.
func shedByKernel(path string) int64 {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	var sum int64
	for line := range bytes.Lines(b) {
		columns := bytes.Fields(line)
		if len(columns) < 2 {
			continue
		}
		if v, err := strconv.ParseUint(string(columns[1]), 16, 32); err == nil {
			sum += int64(v)
		}
	}
	return sum
}
