package attestation

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/narwhal-fleet/narwhal/attest"
	"github.com/narwhal-fleet/narwhal/attest/look"
	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/internal/process"
)

// live is what gate C recorded of an engine's process.
type live struct {
	Version      string  `json:"version"`
	ProcessStart float64 `json:"process_start"`
	PID          int     `json:"pid"`
	BootID       string  `json:"boot_id"`
	Ticks        uint64  `json:"start_ticks"`
	Launch       string  `json:"launch"`
}

// layout is the part of gate C's cache evidence that a contract speaks of.
type layout struct {
	Dtype    string `json:"cache_dtype"`
	Geometry *struct {
		Layers   int `json:"layers"`
		KVHeads  int `json:"kv_heads"`
		HeadSize int `json:"head_size"`
	} `json:"geometry"`
}

func liveKey(e string) record.Key { return record.NewKey("C", "live", e) }

// connectors are the contract names of the fleet file's connectors.
var connectors = map[string]string{"nixl": "NixlConnector", "mooncake": "mooncake"}

// documentOf is what an engine must attest: the fleet's contract, or what gate C saw
// where the fleet declares none, bound to the launch.
func documentOf(v gates.View, e string) (attest.Document, live, error) {
	var l live
	if err := v.Decode(liveKey(e), &l); err != nil {
		return attest.Document{}, l, err
	}
	var c layout
	if err := v.Decode(record.NewKey("C", "cache", e), &c); err != nil {
		return attest.Document{}, l, err
	}
	watch, err := WatchOf(v.Fleet, e)
	if err != nil {
		return attest.Document{}, l, err
	}
	where, err := attest.WatchTree(watch)
	if err != nil {
		return attest.Document{}, l, err
	}
	d := attest.Document{Contract: contractOf(v.Fleet, l, c), Sources: map[string]string{}, Launch: map[string]any{"launch_sha256": l.Launch, "watch": where}}
	fields, err := attest.ContractFields(d.Contract)
	if err != nil {
		return d, l, err
	}
	source := "declared in the fleet file"
	if v.Fleet.EngineContract == nil {
		source = "observed by gate C"
	}
	for name, value := range fields {
		if value != nil && value != "" && fmt.Sprint(value) != "0" {
			d.Sources[name] = source
		}
	}
	return d, l, nil
}

func contractOf(f fleet.Fleet, l live, c layout) fleet.Contract {
	if f.EngineContract != nil {
		return *f.EngineContract
	}
	k := fleet.Contract{EngineVersion: l.Version, Connector: connectors[f.Engine.Connector], KVCacheDtype: c.Dtype}
	if c.Geometry != nil {
		k.HiddenLayers, k.KVHeads, k.HeadSize = c.Geometry.Layers, c.Geometry.KVHeads, c.Geometry.HeadSize
	}
	return k
}

// launchDigest tells one sidecar from the next: it changes with the document and with
// the engine's process, and with the unit that runs it.
func launchDigest(argv []string, release, document, engine string, unit *process.Unit) string {
	text := strings.Join(argv, "\x00") + "\x00" + release + "\x00" + document + "\x00" + engine
	if unit != nil {
		text += "\x00" + unit.File + "\x00" + unit.SHA256
	}
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// Judge verifies every statement: key, nonce, contract, launch and process.
func (Gate) Judge(v gates.View) []record.Finding {
	var out []record.Finding
	for _, e := range v.Fleet.Engines {
		if _, err := sidecarAddress(e); err != nil {
			out = append(out, finding(v, e.IID, "sidecar-address", "", err.Error(), "set engines[].attestation_url"))
			continue
		}
		if !v.Has(statementKey(e.IID)) {
			continue // the runner reports missing evidence
		}
		out = append(out, judgeEngine(v, e.IID)...)
	}
	return out
}

func judgeEngine(v gates.View, e string) []record.Finding {
	const again = "narwhal gate run --again E starts its sidecar anew"
	var s Stated
	err := v.Decode(statementKey(e), &s)
	var policy attest.EnginePolicy
	if err == nil {
		_, policy, err = verify(v, e, s)
	}
	if policy.Key == nil && err != nil {
		return []record.Finding{finding(v, e, "statement-unchecked", "", err.Error(), again)}
	}
	return slices.Concat(judgeObserved(v, e), judgeUnseen(v, e), refused(v, e, err, again))
}

// judgeUnseen names what the host cannot see of an engine whose launch has a folder of a model. Without the
// checkpoint's digest nobody knows what it serves, so that the gate does not pass; the rest is a note.
func judgeUnseen(v gates.View, e string) (out []record.Finding) {
	var seen Observation
	w, err := WatchOf(v.Fleet, e)
	if err != nil || !path.IsAbs(w.Model) || v.Decode(observedKey(e), &seen) != nil {
		return nil
	}
	for _, name := range []string{look.Checkpoint, look.Tokenizer, look.EngineConfig, look.Changed} {
		why := seen.Observed[name].Unknown
		if why == "" {
			continue
		}
		f := finding(v, e, "statement-unseen", name, "unknown: "+why, "see that the SSH user of its host may read the model's folder and the process: root, or the user that the engine runs as; mend links that lead nowhere")
		f.Evidence, f.Message, f.Note = string(observedKey(e)), fmt.Sprintf("engine %s: the host cannot see %s: %s", e, name, why), name != look.Checkpoint
		out = append(out, f)
	}
	return out
}

// refused names each rule that a statement breaks.
func refused(v gates.View, e string, err error, hint string) (out []record.Finding) {
	if err == nil {
		return nil
	}
	codes := attest.Codes(err)
	if len(codes) == 0 {
		codes = []string{"unchecked"}
	}
	for _, c := range codes {
		out = append(out, finding(v, e, "statement-"+strings.ReplaceAll(c, "_", "-"), "", err.Error(), hint))
	}
	return out
}

// judgeObserved compares the process that was looked at with the one that gate C launched.
func judgeObserved(v gates.View, e string) []record.Finding {
	var l live
	var seen Observation
	if v.Decode(liveKey(e), &l) != nil || v.Decode(observedKey(e), &seen) != nil {
		return nil // said before
	}
	if launched := (process.Identity{PID: l.PID, BootID: l.BootID, StartTicks: l.Ticks}); seen.Identity != launched {
		f := finding(v, e, "observed-process", launched.String(), seen.Identity.String(), "narwhal gate run --again C looks at the engine anew")
		f.Evidence, f.Message = string(observedKey(e)), fmt.Sprintf("engine %s: the host looked at process %s, gate C launched %s", e, seen.Identity, launched)
		return []record.Finding{f}
	}
	return nil
}

// verify checks an engine's statement against what earlier gates recorded.
func verify(v gates.View, e string, s Stated) (attest.EngineClaim, attest.EnginePolicy, error) {
	var p attest.EnginePolicy
	doc, l, err := documentOf(v, e)
	if err != nil {
		return attest.EngineClaim{}, p, err
	}
	var k struct {
		Public string `json:"public"`
	}
	if err := v.Decode(record.NewKey("B", "key", v.Fleet.HostOf(e)), &k); err != nil {
		return attest.EngineClaim{}, p, err
	}
	key, err := attest.LoadPublic([]byte(k.Public))
	if err != nil {
		return attest.EngineClaim{}, p, err
	}
	digest, err := doc.LaunchDigest()
	if err != nil {
		return attest.EngineClaim{}, p, err
	}
	var seen Observation
	if err := v.Decode(observedKey(e), &seen); err != nil {
		return attest.EngineClaim{}, p, err
	}
	if err := seen.Observed.Check(); err != nil {
		return attest.EngineClaim{}, p, err
	}
	p = attest.EnginePolicy{Key: key, Observed: seen.Observed, Nonce: s.Nonce, Contract: &doc.Contract, LaunchDigest: digest, Identity: attest.EngineIdentity{
		Version: l.Version, ProcessStart: l.ProcessStart, PID: l.PID, BootID: l.BootID, StartTicks: int64(l.Ticks),
	}}
	claim, err := attest.VerifyEngine(s.Bundle, p)
	return claim, p, err
}

func finding(v gates.View, e, code, want, got, hint string) record.Finding {
	return record.Finding{Code: code, Host: v.Fleet.HostOf(e), Engine: e, Want: want, Got: got, Hint: hint, Evidence: string(statementKey(e)),
		Message: fmt.Sprintf("engine %s: %s", e, got)}
}
