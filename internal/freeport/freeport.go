// Package freeport draws ports for processes that listen on them later.
//
// It promises ports that were free when they were drawn, below the range from which the kernel
// takes ports for connections, and other ones than those this process drew last. It refuses to
// keep them: whoever binds first has them.
package freeport

import (
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"sync"
)

const (
	first, most = 20000, 12000
	remembered  = 4000 // drawn ports that are not drawn again, the last ones
)

var (
	mu    sync.Mutex
	drawn []int // guarded by mu, the oldest first
)

// Draw returns n different ports of the loopback address. All are held until each is known.
func Draw(n int) ([]int, error) {
	mu.Lock()
	defer mu.Unlock()
	var ports []int
	for tries := 0; len(ports) < n; tries++ {
		if tries > 50*n {
			return nil, fmt.Errorf("find free ports: fewer than %d from %d to %d", n, first, first+most)
		}
		port := first + rand.IntN(most)
		if slices.Contains(drawn, port) {
			continue
		}
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			continue
		}
		defer l.Close()
		ports = append(ports, port)
	}
	drawn = append(drawn, ports...)
	drawn = drawn[max(0, len(drawn)-remembered):]
	return ports, nil
}
