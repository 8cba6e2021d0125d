// Package freeport draws ports for processes that listen on them later.
//
// It promises ports that were free when they were drawn, below the range from which the kernel
// takes ports for connections, and other ones than this process drew before or another one may draw
// as long as this process runs. It refuses to keep them: whoever binds first has them.
package freeport

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// Ports are drawn from blocks. A process has a block while it listens on the block's first port.
const (
	first, blocks, size = 20000, 240, 50
	tries               = 4 * blocks
)

var (
	mu   sync.Mutex
	own  []net.Listener // the claims, until the process ends; guarded by mu, as are the ports
	left []int          // ports of own blocks that were not drawn yet
)

// Draw returns n different ports of the loopback address. All are held until each is known.
func Draw(n int) ([]int, error) {
	mu.Lock()
	defer mu.Unlock()
	var ports []int
	for len(ports) < n {
		if len(left) == 0 {
			if err := claim(); err != nil {
				return nil, err
			}
		}
		port := left[len(left)-1]
		left = left[:len(left)-1]
		l, err := listen(port)
		if err != nil {
			continue // somebody has it
		}
		defer l.Close()
		ports = append(ports, port)
	}
	return ports, nil
}

// claim takes a block that no other process has.
func claim() error {
	for range tries {
		base := first + size*rand.IntN(blocks)
		l, err := listen(base)
		if err != nil {
			continue
		}
		own = append(own, l)
		for _, i := range rand.Perm(size - 1) {
			left = append(left, base+1+i)
		}
		return nil
	}
	return fmt.Errorf("find free ports: all from %d to %d are in use", first, first+size*blocks)
}

func listen(port int) (net.Listener, error) {
	return net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
}
