package install

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
	"strings"

	"github.com/narwhal-fleet/narwhal/attest"
	"github.com/narwhal-fleet/narwhal/gates"
)

// PredicateRelease is the type of the statement about a release.
const PredicateRelease = "https://github.com/narwhal-fleet/narwhal/release/v1"

// manifestName is the file beside a release's binary that says what was signed.
const manifestName = "release.json"

// Manifest is what a release consists of, and the operator's statement about it.
type Manifest struct {
	Schema   string         `json:"schema"`
	Version  int            `json:"schema_version"`
	Binaries []gates.Binary `json:"binaries"`
	// Statement is a Sigstore bundle whose subjects are the binaries; absent without a key.
	Statement json.RawMessage `json:"statement,omitempty"`
}

// Released is the statement's predicate.
type Released struct {
	Fleet    string         `json:"fleet"`
	Run      string         `json:"run"`
	Binaries []gates.Binary `json:"binaries"`
}

// Locals are the operations of the gate that the workstation leads.
func (Gate) Locals() map[string]gates.Local {
	return map[string]gates.Local{"manifest": writeManifest}
}

// writeManifest lists the binaries and signs the list.
func writeManifest(_ context.Context, env gates.Env, _ json.RawMessage) ([]byte, error) {
	v := env.View()
	m := Manifest{Schema: "narwhal.release", Version: 1, Binaries: v.Release.Binaries()}
	predicate, err := json.Marshal(Released{Fleet: v.Fleet.Deploy.Name, Run: v.Run, Binaries: m.Binaries})
	if err != nil {
		return nil, fmt.Errorf("describe the release: %w", err)
	}
	st := attest.Statement{PredicateType: PredicateRelease, Predicate: predicate}
	for _, b := range m.Binaries {
		name := "narwhal"
		if b.Arch != "" {
			name += "-" + strings.ReplaceAll(b.Arch, "/", "-")
		}
		st.Subject = append(st.Subject, attest.SHA256Subject(name, b.SHA256))
	}
	if m.Statement, err = env.Sign(st); err != nil {
		return nil, fmt.Errorf("sign the release: %w", err)
	}
	return json.Marshal(m)
}

// manifestPath is where a host keeps the manifest of a release.
func manifestPath(root, release string) string {
	return path.Join(root, gates.DirReleases, release, manifestName)
}
