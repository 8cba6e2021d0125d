package router

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"

	"github.com/narwhal-fleet/narwhal/runtime/engine"
)

// crowd is many clients of their own connections; its methods are safe for concurrent use.
type crowd struct {
	http *http.Client
	mu   sync.Mutex
	seen map[string]sight
	errs []error
}

func newCrowd(t *testing.T) *crowd {
	tr := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(tr.CloseIdleConnections)
	return &crowd{http: &http.Client{Transport: tr}, seen: map[string]sight{}}
}

func (c *crowd) note(s sight, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen[s.request] = s
	if err != nil {
		c.errs = append(c.errs, fmt.Errorf("%s: %w", engine.Printable(s.request, 64), err))
	}
}

// tally counts what the crowd saw.
func (c *crowd) tally() map[string]int {
	m := map[string]int{}
	for _, s := range c.seen {
		m[s.short()]++
	}
	return m
}

func getJSON(url string, v any) error {
	resp, err := http.Get(url)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return json.NewDecoder(resp.Body).Decode(v)
}

func get200(t *testing.T, url string) string {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	all, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 200 {
		t.Fatal(resp.StatusCode, err)
	}
	return string(all)
}
