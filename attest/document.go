package attest

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/narwhal-fleet/narwhal/attest/canonical"
	"github.com/narwhal-fleet/narwhal/fleet"
)

// Names of the reference's attestation format.
const (
	DocumentSchema  = "narwhal.attestation"
	DocumentVersion = 1
)

// oldNames of contract fields are accepted and written under the new name.
var oldNames = map[string]string{
	"vllm_version": "engine_version", "nixl_version": "transfer_version", "nixl_connector_version": "connector_version",
}

// Document is what an engine is declared to be: a contract, where each of its
// populated fields was read, and optionally how the engine was launched.
type Document struct {
	Contract fleet.Contract
	Sources  map[string]string
	// Launch is nil for none. Its values are those of canonical.Parse.
	Launch map[string]any
}

// ParseDocument reads a narwhal.attestation file. Errors are below ErrDocument.
func ParseDocument(raw []byte) (Document, error) {
	tree, err := parseTree(raw)
	if err != nil {
		return Document{}, err
	}
	if err := onlyKeys(tree, []string{"schema", "schema_version", "contract", "sources"}, "launch"); err != nil {
		return Document{}, fmt.Errorf("read attestation: %w: %w", ErrDocument, err)
	}
	return documentOf(tree)
}

func parseTree(raw []byte) (map[string]any, error) {
	if len(raw) > MaxResponse {
		return nil, fmt.Errorf("read attestation: %d bytes, limit %d: %w", len(raw), MaxResponse, ErrTooLarge)
	}
	tree, err := canonical.ParseObject(raw)
	if err != nil {
		return nil, fmt.Errorf("read attestation: %w: %w", ErrDocument, err)
	}
	return tree, nil
}

// documentOf reads the document part of a file or of a response.
func documentOf(tree map[string]any) (Document, error) {
	var d Document
	err := checkSchema(tree)
	if err == nil {
		d.Contract, err = contractOf(tree["contract"])
	}
	if err == nil {
		d.Sources, err = sourcesOf(tree["sources"])
	}
	if launch, there := tree["launch"]; err == nil && there {
		var ok bool
		if d.Launch, ok = launch.(map[string]any); !ok {
			err = errors.New("launch is no object")
		}
	}
	if err == nil {
		err = d.check()
	}
	if err != nil {
		return Document{}, fmt.Errorf("read attestation: %w: %w", ErrDocument, err)
	}
	return d, nil
}

func checkSchema(tree map[string]any) error {
	if name := tree["schema"]; name != DocumentSchema {
		return fmt.Errorf("schema is not %s", DocumentSchema)
	}
	if v, ok := tree["schema_version"].(json.Number); !ok || v.String() != fmt.Sprint(DocumentVersion) {
		return fmt.Errorf("schema_version is not %d", DocumentVersion)
	}
	return nil
}

// contractOf reads a contract without coercion: the JSON type must be the field's.
func contractOf(v any) (fleet.Contract, error) {
	m, ok := v.(map[string]any)
	if !ok {
		return fleet.Contract{}, errors.New("contract is no object")
	}
	known, err := ContractFields(fleet.Contract{})
	if err != nil {
		return fleet.Contract{}, err
	}
	plain := map[string]any{}
	for name, value := range m {
		if now, old := oldNames[name]; old {
			if _, both := m[now]; both {
				return fleet.Contract{}, fmt.Errorf("contract has %s under its old and its new name", now)
			}
			name = now
		}
		if _, ok := known[name]; !ok {
			return fleet.Contract{}, fmt.Errorf("contract has unknown field %q", clip(name))
		}
		if value == nil && !optionalBool(name) {
			return fleet.Contract{}, fmt.Errorf("contract field %s is null", name)
		}
		plain[name] = value
	}
	text, err := json.Marshal(plain)
	if err != nil {
		return fleet.Contract{}, err
	}
	var c fleet.Contract
	if err := json.Unmarshal(text, &c); err != nil {
		return fleet.Contract{}, fmt.Errorf("contract: %w", err)
	}
	return c, nil
}

func optionalBool(name string) bool {
	return name == "cross_layers_blocks" || name == "hybrid_kv_cache_manager" || name == "enforce_handshake_compat"
}

func sourcesOf(v any) (map[string]string, error) {
	m, ok := v.(map[string]any)
	if !ok {
		return nil, errors.New("sources is no object")
	}
	out := make(map[string]string, len(m))
	for name, value := range m {
		text, ok := value.(string)
		if !ok || strings.TrimSpace(text) == "" {
			return nil, fmt.Errorf("source of %q is no text", clip(name))
		}
		out[name] = text
	}
	return out, nil
}

func (d Document) check() error {
	c := d.Contract
	if c.EngineVersion == "" || c.Connector == "" {
		return errors.New("engine_version or connector is empty")
	}
	if c.EnforceHandshakeCompat != nil && !*c.EnforceHandshakeCompat {
		return errors.New("enforce_handshake_compat is false")
	}
	if hex, ok := strings.CutPrefix(c.ImageDigest, "sha256:"); c.ImageDigest != "" && (!ok || !isHex(hex, 32)) {
		return errors.New("image_digest is not sha256: and 64 hex digits")
	}
	if c.ConnectorVersion < 0 || c.KVHeads < 0 || c.HeadSize < 0 || c.HiddenLayers < 0 {
		return errors.New("a number of the contract is negative")
	}
	fields, err := ContractFields(c)
	if err != nil {
		return err
	}
	var without []string
	for name, value := range fields {
		if _, ok := d.Sources[name]; !ok && populated(value) {
			without = append(without, name)
		}
	}
	if slices.Sort(without); len(without) > 0 {
		return fmt.Errorf("contract fields without a source: %s; sources says of each field that is set where its value was read, as {%q: \"command line\"}", strings.Join(without, ", "), without[0])
	}
	for name := range d.Sources {
		if _, ok := fields[name]; !ok {
			return fmt.Errorf("source of unknown field %q", clip(name))
		}
	}
	return nil
}

func populated(v any) bool {
	switch t := v.(type) {
	case bool:
		return true
	case string:
		return t != ""
	case json.Number:
		return t != "0"
	}
	return false
}

// ContractFields returns a contract as canonical values by field name, all fields present.
func ContractFields(c fleet.Contract) (map[string]any, error) {
	text, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("read contract: %w", err)
	}
	return canonical.ParseObject(text)
}

// ContractFingerprint is the reference's short name of a contract: 16 hex digits.
func ContractFingerprint(c fleet.Contract) (string, error) {
	fields, err := ContractFields(c)
	if err != nil {
		return "", err
	}
	return canonical.Fingerprint(fields)
}

// LaunchDigest is the digest of contract and launch, "" without a launch. It
// survives a restart with the same launch.
func (d Document) LaunchDigest() (string, error) {
	if d.Launch == nil {
		return "", nil
	}
	fields, err := ContractFields(d.Contract)
	if err != nil {
		return "", err
	}
	return canonical.Digest(map[string]any{"contract": fields, "launch": d.Launch})
}

// File returns the document in its file form.
func (d Document) File() ([]byte, error) {
	if err := d.check(); err != nil {
		return nil, fmt.Errorf("write attestation: %w: %w", ErrDocument, err)
	}
	tree, err := d.tree()
	if err != nil {
		return nil, err
	}
	return canonical.Encode(tree)
}

func (d Document) tree() (map[string]any, error) {
	fields, err := ContractFields(d.Contract)
	if err != nil {
		return nil, err
	}
	sources := map[string]any{}
	for k, v := range d.Sources {
		sources[k] = v
	}
	tree := map[string]any{"schema": DocumentSchema, "schema_version": DocumentVersion, "contract": fields, "sources": sources}
	if d.Launch != nil {
		tree["launch"] = d.Launch
	}
	return tree, nil
}

func finitePositive(f float64) bool { return f > 0 && !math.IsInf(f, 0) && !math.IsNaN(f) }
