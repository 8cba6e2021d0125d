package router

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/journal"
)

// leaver is a client that ends its connection somewhere: inside its request, while it waits,
// or inside the answer.
type leaver struct {
	rid    string
	wire   string
	send   int  // bytes of the request
	read   int  // bytes of the answer at most
	reset  bool // by a reset, not by an orderly end
	heard  bool // something came
	wholly bool // the head was sent whole
}

func newLeaver(n int, rnd *rand.Rand) *leaver {
	ask := stormAsk(n)
	ask["stream"] = n%2 == 0
	body, _ := json.Marshal(ask)
	l := &leaver{rid: fmt.Sprint("leaver-", n), reset: n%5 == 0}
	head := fmt.Sprintf("POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nX-Request-Id: %s\r\nContent-Length: %d\r\n\r\n", l.rid, len(body))
	l.wire = head + string(body)
	l.send = len(l.wire)
	switch n % 4 {
	case 0: // inside the request
		l.send = rnd.IntN(len(l.wire))
	case 1: // while it waits
	default: // inside the answer
		l.read = 1 + rnd.IntN(6000)
	}
	l.wholly = l.send >= len(head)
	return l
}

func (l *leaver) run(addr string) error {
	c, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", addr)
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	if _, err := io.WriteString(c, l.wire[:l.send]); err != nil {
		return err
	}
	n, _ := io.CopyN(io.Discard, c, int64(l.read))
	l.heard = n > 0
	if l.reset {
		return c.(*net.TCPConn).SetLinger(0)
	}
	return nil
}

// flee runs clients that leave, so many at once, and checks that each left one row or none.
func (s *storm) flee(t *testing.T, count, atOnce int) {
	rnd := rand.New(rand.NewPCG(1, 2))
	all := make([]*leaver, count)
	queue := make(chan *leaver)
	var crew sync.WaitGroup
	for range atOnce {
		crew.Go(func() {
			for l := range queue {
				if err := l.run(s.router.Addr()); err != nil {
					t.Errorf("%s: %v", l.rid, err)
				}
			}
		})
	}
	for i := range all {
		all[i] = newLeaver(i, rnd)
		queue <- all[i]
	}
	close(queue)
	crew.Wait()
	if err := s.idle(); err != nil {
		t.Error(err)
	}
	eventually(t, "nobody in flight", func() bool { return s.state().Admission["inflight"] == 0.0 })
	rows := map[string][]journal.Row{}
	ends := map[string]int{}
	for _, r := range s.rows() {
		if r.ClientRID != nil && strings.HasPrefix(*r.ClientRID, "leaver-") {
			rows[*r.ClientRID] = append(rows[*r.ClientRID], r)
			ends[outcome(r)]++
		}
	}
	lost := 0
	for _, l := range all {
		n := len(rows[l.rid])
		// A reset may overtake a request that nobody has read yet.
		if n > 1 || n == 0 && (l.heard || l.wholly && !l.reset) || n == 1 && !l.wholly {
			lost++
			t.Errorf("%s sent %d of %d bytes, head whole %v, heard %v: %d rows", l.rid, l.send, len(l.wire), l.wholly, l.heard, n)
		}
	}
	t.Logf("%d clients left, %d rows lost, ends %v", count, lost, ends)
}

func TestFaultsClientsLeave(t *testing.T) {
	t.Parallel()
	settles(t)
	stormy(t).flee(t, 400, 40)
}
