package preflight

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"

	"github.com/narwhal-fleet/narwhal/attest"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/runtime/profile"
)

// StoreKey names the profile document that the router reads.
const StoreKey = record.Key("F/store")

// Locals are the operations of the gate that run on the workstation.
func (Gate) Locals() map[string]gates.Local {
	return map[string]gates.Local{"store": func(_ context.Context, env gates.Env, _ json.RawMessage) ([]byte, error) {
		s, err := store(env.View())
		if err != nil {
			return nil, err
		}
		return s.Encode()
	}}
}

// store fits one row an engine and binds it to the launch that the engine attests.
func store(v gates.View) (profile.Store, error) {
	var rows []profile.Row
	for _, e := range v.Fleet.EngineIDs() {
		var m Profiled
		if err := v.Decode(ProfileKey(e), &m); err != nil {
			return profile.Store{}, err
		}
		binding, err := attested(v, e)
		if err != nil {
			return profile.Store{}, fmt.Errorf("bind the profile of %s: %w", e, err)
		}
		row, err := m.row(e, binding)
		if err != nil {
			return profile.Store{}, fmt.Errorf("fit engine %s: %w", e, err)
		}
		rows = append(rows, row)
	}
	return profile.NewStore(map[string]any{"package": "narwhal"}, rows...), nil
}

// row is an engine's fitted curve, bound to the generation with this digest.
func (p Profiled) row(e, binding string) (profile.Row, error) {
	curve, rep, err := p.fit()
	if err != nil {
		return profile.Row{}, err
	}
	row := profile.NewRow(e, binding, curve, rep)
	if p.Capacity > 0 {
		row.KVCapacityTokens = &p.Capacity
	}
	return row, nil
}

// attested reads the binding digest out of the statement that gate E verified.
func attested(v gates.View, e string) (string, error) {
	var s struct {
		Bundle struct {
			Envelope struct {
				Payload string `json:"payload"`
			} `json:"dsseEnvelope"`
		} `json:"bundle"`
	}
	if err := v.Decode(record.NewKey("E", "statement", e), &s); err != nil {
		return "", err
	}
	payload, err := base64.StdEncoding.DecodeString(s.Bundle.Envelope.Payload)
	if err != nil {
		return "", fmt.Errorf("read statement: %w", err)
	}
	var st struct {
		Predicate struct {
			Attestation json.RawMessage `json:"attestation"`
		} `json:"predicate"`
	}
	if err := json.Unmarshal(payload, &st); err != nil {
		return "", fmt.Errorf("read statement: %w", err)
	}
	r, err := attest.ParseResponse(st.Predicate.Attestation)
	if err != nil {
		return "", err
	}
	return r.Binding(), nil
}
