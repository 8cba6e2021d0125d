package freeport

import (
	"sync"
	"testing"
)

// TestDrawnOnce draws as those do at once who listen later: no port comes twice.
func TestDrawnOnce(t *testing.T) {
	var mu sync.Mutex
	seen := map[int]bool{}
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			ports, err := Draw(60)
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			for _, p := range ports {
				if p < first || p >= first+most || seen[p] {
					t.Errorf("port %d, drawn before: %v", p, seen[p])
				}
				seen[p] = true
			}
		})
	}
	all.Wait()
	for range 10 {
		if _, err := Draw(500); err != nil {
			t.Fatal(err)
		}
	}
	if len(drawn) != remembered {
		t.Errorf("%d ports are remembered, want %d", len(drawn), remembered)
	}
}
