package attestation

import (
	"context"

	"github.com/narwhal-fleet/narwhal/attest"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/record"
)

// Recheck asks an engine's sidecar for a statement over a new nonce and verifies it as the gate
// does, against what is recorded. An error means that it could not be asked or verified.
func Recheck(ctx context.Context, dial Dial, v gates.View, iid string) ([]record.Finding, error) {
	e, _ := v.Fleet.ByID(iid)
	address, err := sidecarAddress(e)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, hashLimit.D())
	defer cancel()
	s := Stated{Nonce: attest.NewNonce()}
	if s.Bundle, err = ask(ctx, dial, askArgs{Host: v.Fleet.HostOf(iid), Address: address}, s.Nonce); err != nil {
		return nil, err
	}
	_, policy, err := verify(v, iid, s)
	if policy.Key == nil && err != nil {
		return nil, err
	}
	return refused(v, iid, err, "the engine was restarted, or something on its host changed: narwhal gate run looks at it and attests it anew"), nil
}
