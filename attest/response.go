package attest

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/narwhal-fleet/narwhal/attest/canonical"
)

// Response is what a sidecar answers at /v1/attestation: the document, the live
// engine's version and process start, and the digests over them.
type Response struct {
	Document
	EngineVersion string
	ProcessStart  float64 // seconds since 1970, as the engine reports it
	LaunchDigest  string  // "" without a launch
	Digest        string  // attestation_digest
}

// NewResponse binds a document to a live process.
func NewResponse(d Document, version string, processStart float64) (Response, error) {
	r := Response{Document: d, EngineVersion: version, ProcessStart: processStart}
	var err error
	if r.LaunchDigest, err = d.LaunchDigest(); err != nil {
		return Response{}, fmt.Errorf("make attestation: %w", err)
	}
	tree, err := r.undigested()
	if err != nil {
		return Response{}, fmt.Errorf("make attestation: %w", err)
	}
	if r.Digest, err = canonical.Digest(tree); err != nil {
		return Response{}, fmt.Errorf("make attestation: %w", err)
	}
	return r, nil
}

// Binding is the digest that profiles and calibrations are bound to.
func (r Response) Binding() string {
	if r.LaunchDigest != "" {
		return r.LaunchDigest
	}
	return r.Digest
}

// JSON returns the response as it goes over the wire, in canonical form.
func (r Response) JSON() ([]byte, error) {
	tree, err := r.undigested()
	if err != nil {
		return nil, err
	}
	tree["attestation_digest"] = r.Digest
	return canonical.Encode(tree)
}

func (r Response) undigested() (map[string]any, error) {
	tree, err := r.tree()
	if err != nil {
		return nil, err
	}
	tree["engine"] = map[string]any{"version": r.EngineVersion, "process_start_time_seconds": r.ProcessStart}
	if r.LaunchDigest != "" {
		tree["launch_digest"] = r.LaunchDigest
	}
	return tree, nil
}

// ParseResponse reads a response and recomputes both digests. It compares
// nothing with an expectation. Errors are below ErrDocument.
func ParseResponse(raw []byte) (Response, error) {
	tree, err := parseTree(raw)
	if err != nil {
		return Response{}, err
	}
	bad := func(err error) (Response, error) {
		return Response{}, fmt.Errorf("read attestation: %w: %w", ErrDocument, err)
	}
	required := []string{"schema", "schema_version", "contract", "sources", "engine", "attestation_digest"}
	if err := onlyKeys(tree, required, "launch", "launch_digest"); err != nil {
		return bad(err)
	}
	_, launch := tree["launch"]
	launchDigest, digested := tree["launch_digest"]
	if launch != digested {
		return bad(errors.New("launch and launch_digest come together"))
	}
	said := tree["attestation_digest"]
	delete(tree, "attestation_digest")
	if got, err := canonical.Digest(tree); err != nil || got != said {
		return bad(errors.New("attestation_digest does not fit"))
	}
	doc, err := documentOf(tree)
	if err != nil {
		return Response{}, err
	}
	version, start, err := engineOf(tree["engine"])
	if err != nil {
		return bad(err)
	}
	r := Response{Document: doc, EngineVersion: version, ProcessStart: start, Digest: said.(string)}
	if launch {
		// Over the values as sent: a sender may use a contract field's old name.
		r.LaunchDigest, err = canonical.Digest(map[string]any{"contract": tree["contract"], "launch": tree["launch"]})
		if err != nil || r.LaunchDigest != launchDigest {
			return bad(errors.New("launch_digest does not fit"))
		}
	}
	return r, nil
}

func engineOf(v any) (version string, start float64, err error) {
	m, ok := v.(map[string]any)
	if !ok {
		return "", 0, errors.New("engine is no object")
	}
	if err := onlyKeys(m, []string{"version", "process_start_time_seconds"}); err != nil {
		return "", 0, fmt.Errorf("engine: %w", err)
	}
	version, _ = m["version"].(string)
	number, _ := m["process_start_time_seconds"].(json.Number)
	start, err = number.Float64()
	if err != nil || version == "" || !finitePositive(start) {
		return "", 0, errors.New("engine has no version or no process start")
	}
	return version, start, nil
}

func isHex(s string, bytes int) bool {
	b, err := hex.DecodeString(s)
	return err == nil && len(b) == bytes && strings.ToLower(s) == s
}
