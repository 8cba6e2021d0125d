// Package simulatedtest starts simulated engines for tests.
//
// It promises that each ends with its test. It refuses to choose a model: the test says which.
package simulatedtest

import (
	"testing"

	"github.com/narwhal-fleet/narwhal/runtime/engine/simulated"
)

// Start starts a simulated engine in this process until the test ends. change may be nil.
func Start(t *testing.T, cfg simulated.Config, change func(*simulated.Config)) *simulated.Server {
	t.Helper()
	if change != nil {
		change(&cfg)
	}
	s, err := simulated.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return s
}
