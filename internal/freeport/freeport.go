// Package freeport draws ports for processes that listen on them later.
//
// It promises ports that were free when they were drawn, below the range from which the kernel
// takes ports for connections. It refuses to keep them: whoever binds first has them.
package freeport

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

const first, most = 20000, 12000

// Draw returns n different ports of the loopback address. All are held until each is known.
func Draw(n int) ([]int, error) {
	var ports []int
	for tries := 0; len(ports) < n; tries++ {
		if tries > 50*n {
			return nil, fmt.Errorf("find free ports: fewer than %d from %d to %d", n, first, first+most)
		}
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(first+rand.IntN(most))))
		if err != nil {
			continue
		}
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}
