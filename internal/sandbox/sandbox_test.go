package sandbox_test

import (
	"os"
	"testing"

	"github.com/narwhal-fleet/narwhal/internal/sandbox"
	"github.com/narwhal-fleet/narwhal/schema"
)

// TestSeveralEnginesAHost is a fleet file that validates, with ports of their own.
func TestSeveralEnginesAHost(t *testing.T) {
	s, err := sandbox.Up(sandbox.Config{Dir: t.TempDir(), Hosts: 3, Engines: 2, Operator: "keys/operator.key"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Down(t.Context()) })
	b, err := os.ReadFile(s.Fleet)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := schema.Load(t.Context(), []schema.Source{{Name: s.Fleet, Data: b}}, schema.Options{})
	if err != nil {
		t.Fatal(err)
	}
	f := doc.Fleet
	on := map[string]int{}
	for _, p := range f.Deploy.Engines {
		on[p.Host]++
	}
	if len(f.Engines) != 6 || len(on) != 3 || on["host-1"] != 2 || f.Engines[3].Role != "prefill" || f.Engines[4].Role != "decode" {
		t.Errorf("%d engines, by host %v: %+v", len(f.Engines), on, f.Engines)
	}
	if _, err := sandbox.Up(sandbox.Config{Dir: t.TempDir(), Engines: 9}); err == nil {
		t.Error("nine engines a host")
	}
}
