package install

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/narwhal-fleet/narwhal/attest"
)

// Checked says whether a release is signed by a key that this host trusts.
type Checked struct {
	Signature string `json:"signature"` // good or bad
	Why       string `json:"why,omitempty"`
}

// maxManifest bounds the file beside a release.
const maxManifest = 1 << 20

// checkRelease is asked of the release before, about one that may not run yet.
func checkRelease(_ context.Context, q SwitchRequest) (Checked, error) {
	if !digestRE.MatchString(q.Release) {
		return Checked{}, fmt.Errorf("check release: %.64q is no digest", q.Release)
	}
	names, err := filepath.Glob(filepath.Join(q.Root, trustDir, "*.pem"))
	if err != nil || len(names) == 0 {
		return Checked{Signature: "bad", Why: "no trusted key"}, nil
	}
	var keys []*attest.Public
	for _, n := range names {
		k, err := attest.LoadPublicFile(n)
		if err != nil {
			return Checked{}, fmt.Errorf("check release: %w", err)
		}
		keys = append(keys, k)
	}
	f, err := os.Open(manifestPath(q.Root, q.Release))
	if err != nil {
		return Checked{}, fmt.Errorf("check release: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxManifest))
	if err != nil {
		return Checked{}, fmt.Errorf("check release: %w", err)
	}
	var m Manifest
	if err := json.Unmarshal(b, &m); err != nil {
		return Checked{Signature: "bad", Why: "no manifest"}, nil
	}
	v, err := attest.NewVerifier(attest.Policy{Keys: keys, PredicateTypes: []string{PredicateRelease}, AnySubject: true})
	if err != nil {
		return Checked{}, fmt.Errorf("check release: %w", err)
	}
	got, err := v.Verify(m.Statement)
	if err != nil {
		return Checked{Signature: "bad", Why: err.Error()}, nil
	}
	for _, s := range got.Statement.Subject {
		if s.Digest["sha256"] == q.Release {
			return Checked{Signature: "good"}, nil
		}
	}
	return Checked{Signature: "bad", Why: "what is signed is not this release"}, nil
}
