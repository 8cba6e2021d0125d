package lease_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/router/lease"
	"github.com/narwhal-fleet/narwhal/runtime/router/lease/conformance"
)

func TestFileConforms(t *testing.T) {
	for name, proof := range map[string]lease.Proof{"proof": lease.ProofOn, "expiry only": lease.ProofOff} {
		t.Run(name, func(t *testing.T) {
			conformance.Run(t, conformance.Target{TTL: 5 * time.Second, Margin: time.Second, Bubble: true, Store: func(t *testing.T) func(string, time.Duration, time.Duration) lease.Lease {
				path := filepath.Join(t.TempDir(), "lease.json")
				return func(holder string, ttl, margin time.Duration) lease.Lease {
					l, err := lease.NewFile(lease.FileOptions{Path: path, Holder: holder, TTL: ttl, Margin: margin, Proof: proof})
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(l.Close)
					return l
				}
			}})
		})
	}
}

func TestMemoryConforms(t *testing.T) {
	conformance.Run(t, conformance.Target{TTL: 5 * time.Second, Margin: time.Second, Bubble: true, Store: func(*testing.T) func(string, time.Duration, time.Duration) lease.Lease {
		return new(conformance.Memory).Lease
	}})
}
