package router

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/runtime/engine"
	"github.com/narwhal-fleet/narwhal/runtime/engine/simulated"
	"github.com/narwhal-fleet/narwhal/runtime/profile"
)

func completeContract() *fleet.Contract {
	yes := true
	return &fleet.Contract{EngineVersion: "0.32.0", TransferVersion: "1.3", ConnectorVersion: 14, ModelArchitecture: "A", ModelDtype: "bfloat16", KVHeads: 8,
		HeadSize: 64, HiddenLayers: 16, AttentionBackend: "FLASH_ATTN", KVCacheDtype: "auto", CrossLayersBlocks: &yes, HybridKVCacheManager: &yes,
		Connector: "NixlConnector", KVRole: "kv_both", TransferMode: "read", SpeculativeConfig: "none", EnforceHandshakeCompat: &yes}
}

// sidecar stands for the sidecars of a contracted fleet.
type sidecar struct {
	sync.Mutex
	attest, verify map[string]error // by engine
	asked          func(ctx context.Context, iid string)
}

func (s *sidecar) fail(m *map[string]error, iid string, err error) {
	s.Lock()
	defer s.Unlock()
	*m = map[string]error{iid: err}
}

func (s *sidecar) Attest(ctx context.Context, iid string, _ engine.Identity) error {
	s.Lock()
	err, asked := s.attest[iid], s.asked
	s.Unlock()
	if asked != nil {
		asked(ctx, iid)
	}
	return err
}

func (s *sidecar) Verify(_ context.Context, row profile.Row, _ engine.Identity) error {
	s.Lock()
	defer s.Unlock()
	return s.verify[row.IID]
}

// contracted is a fleet with a contract, whose processes may be restarted; nothing is swept
// and nobody is recovered by itself.
func contracted(s *sidecar) tweak {
	return func(c *Config) {
		c.Fleet.EngineContract = completeContract()
		c.Attest, c.Verify = s.Attest, s.Verify
		unswept(c)
	}
}

// restart replaces an engine's process at its address.
func (b *testbed) restart(iid string, change ...func(*simulated.Config)) {
	b.t.Helper()
	for i, e := range b.router.set.Fleet.Engines {
		if e.IID != iid {
			continue
		}
		old := b.engines[i]
		c := simulated.Config{Simulated: quick(), Model: modelName, Listen: old.Addr(), SideChannel: "127.0.0.1:0"}
		for _, f := range change {
			f(&c)
		}
		old.Stop()
		b.engines[i] = b.launch(c)
	}
}

func (b *testbed) lifecycle(call, body string) (int, lifecycleDoc) {
	b.t.Helper()
	a := post(b.t, limit(b.t), b.url+"/narwhal/lifecycle/"+call, body)
	var d lifecycleDoc
	if err := json.Unmarshal([]byte(a.body), &d); err != nil || d.Error == nil {
		b.t.Fatalf("%d %s: %v", a.status, a.body, err)
	}
	return a.status, d
}

func actions(d lifecycleDoc) (list []string) {
	for _, raw := range d.Events {
		var e struct{ Action string }
		_ = json.Unmarshal(raw, &e)
		list = append(list, e.Action)
	}
	return list
}

var errSidecar = errors.New("sidecar says no")

func referenceLifecycle(t *testing.T) (raw []byte, d lifecycleDoc) {
	t.Helper()
	raw, err := os.ReadFile("testdata/reference-lifecycle-readmitted.json")
	if err == nil {
		err = json.Unmarshal(raw, &d)
	}
	if err != nil {
		t.Fatal(err)
	}
	return raw, d
}

// fingerprinted puts this fleet's fingerprint into recorded checks.
func fingerprinted(checks []string) []string {
	out := slices.Clone(checks)
	for i, c := range out {
		if strings.HasPrefix(c, "attestation ") {
			out[i] = "attestation " + completeContract().Fingerprint()
		}
	}
	return out
}
