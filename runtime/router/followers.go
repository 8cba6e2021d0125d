package router

import (
	"context"
	"math"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	followedFor    = 3 * time.Second // after its last poll a standby is no longer waited for
	replicateLimit = time.Second     // an order's answer waits no longer for standbys
	maxFollowers   = 16
	maxFollowerID  = 64 // bytes
)

// kept is the document that one standby says to have, by its lease epoch and time.
type kept struct {
	epoch  int64
	at     float64 // wall, Unix seconds
	polled time.Time
}

// followers are the standbys that poll this router. What they say of themselves is not proven: it
// delays and words the answers to orders, and decides nothing.
type followers struct {
	mu     sync.Mutex
	seen   map[string]kept
	change chan struct{} // closed at the next poll
}

func newFollowers() *followers {
	return &followers{seen: map[string]kept{}, change: make(chan struct{})}
}

// note takes in a poll's standby.KeptHeader; what does not fit is passed over.
func (f *followers) note(header string) {
	id, k, ok := parseKept(header)
	if !ok {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	k.polled = time.Now()
	f.prune(k.polled)
	if _, known := f.seen[id]; !known && len(f.seen) >= maxFollowers {
		return
	}
	f.seen[id] = k
	close(f.change)
	f.change = make(chan struct{})
}

func parseKept(header string) (id string, k kept, ok bool) {
	parts := strings.Fields(header)
	if len(header) > maxFollowerID*2 || len(parts) != 3 || len(parts[0]) > maxFollowerID {
		return "", kept{}, false
	}
	epoch, err := strconv.ParseInt(parts[1], 10, 64)
	at, err2 := strconv.ParseFloat(parts[2], 64)
	if err != nil || err2 != nil || epoch < 0 || at < 0 || math.IsNaN(at) || math.IsInf(at, 0) {
		return "", kept{}, false
	}
	return parts[0], kept{epoch: epoch, at: at}, true
}

func (f *followers) prune(now time.Time) {
	for id, k := range f.seen {
		if now.Sub(k.polled) > followedFor {
			delete(f.seen, id)
		}
	}
}

// behind counts the standbys, and those that do not have a document of the epoch made after at. The
// channel is closed at the next poll.
func (f *followers) behind(epoch int64, at float64) (all, behind int, change <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.prune(time.Now())
	for _, k := range f.seen {
		if k.epoch != epoch || k.at <= at {
			behind++
		}
	}
	return len(f.seen), behind, f.change
}

// await reports whether there is a standby and each has a document of the epoch made after at. It
// waits for that within replicateLimit.
func (f *followers) await(ctx context.Context, epoch int64, at float64) bool {
	ctx, cancel := context.WithTimeout(ctx, replicateLimit)
	defer cancel()
	for {
		all, behind, change := f.behind(epoch, at)
		if behind == 0 {
			return all > 0
		}
		select {
		case <-change:
		case <-ctx.Done():
			return false
		}
	}
}
