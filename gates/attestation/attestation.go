// Package attestation is gate E: a sidecar beside each engine signs, over a fresh nonce,
// what live process it is and under which contract it runs.
//
// It promises that a statement is believed only with the key made at the host's
// installation, for the nonce just asked, and for the process that gate C launched. It
// refuses engines without a sidecar address and contracts that differ.
package attestation

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"time"

	"github.com/narwhal-fleet/narwhal/attest"
	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/internal/process"
)

// Gate is gate E.
type Gate struct{}

// Info names the gate.
func (Gate) Info() gates.Info {
	return gates.Info{Letter: "E", Name: "attest", Title: "Attest", Promise: "every live engine signs one common contract"}
}

func sidecarKey(e string) record.Key   { return record.NewKey("E", "sidecar", e) }
func statementKey(e string) record.Key { return record.NewKey("E", "statement", e) }

// Expect wants an observation, a sidecar and a statement an engine.
func (Gate) Expect(f fleet.Fleet) []record.Key {
	var keys []record.Key
	for _, e := range f.EngineIDs() {
		keys = append(keys, observedKey(e), sidecarKey(e), statementKey(e))
	}
	return keys
}

const (
	stopWithin = fleet.Duration(10 * time.Second)
	shortLimit = fleet.Duration(time.Minute)
)

func sidecarName(iid string) string { return "sidecar-" + iid }

// Plan starts the wanted sidecars and asks each for a statement.
func (Gate) Plan(_ context.Context, v gates.View) (gates.Plan, error) {
	var p gates.Plan
	for _, e := range v.Fleet.Engines {
		if !v.Wants(observedKey(e.IID)) && !v.Wants(sidecarKey(e.IID)) && !v.Wants(statementKey(e.IID)) {
			continue
		}
		address, err := sidecarAddress(e)
		if err != nil {
			continue // Judge names it
		}
		steps, err := engineSteps(v, e, address)
		if err != nil {
			return p, err
		}
		p.Steps = append(p.Steps, steps...)
	}
	return p, nil
}

func engineSteps(v gates.View, e fleet.Engine, address string) ([]gates.Step, error) {
	host := v.Fleet.HostOf(e.IID)
	root := v.Fleet.Deploy.Hosts[host].Root
	var steps []gates.Step
	var before []string
	if v.Wants(observedKey(e.IID)) {
		s, err := observeStep(v, e.IID, host)
		if err != nil {
			return nil, err
		}
		steps = append(steps, s)
	}
	if v.Wants(sidecarKey(e.IID)) {
		doc, pid := []byte("{}"), 0
		if d, live, err := documentOf(v, e.IID); err == nil {
			if doc, err = d.File(); err != nil {
				return nil, err
			}
			pid = live.PID
		} else if observed(v, e.IID) {
			return nil, err
		} // else gate C makes its evidence first: this plan only shows what will be done
		file := gates.TextFile(path.Join(root, "attest", e.IID+".json"), 0o644, doc)
		put := gates.Step{ID: "E/document/" + e.IID, Title: "write the attestation of " + e.IID, Host: host, Engine: e.IID, Effect: gates.Mutate, File: file, Limit: shortLimit}
		argv := []string{path.Join(root, gates.LinkCurrent, "narwhal"), "attest", "serve", "--listen", address, "--engine", e.URL, "--document", file.Path,
			"--key", path.Join(root, gates.DirEtc, "sidecar.key"), "--pid", strconv.Itoa(pid)}
		spec := process.Spec{Name: sidecarName(e.IID), Argv: argv, Unit: gates.UnitOf(v.Fleet, host, sidecarName(e.IID))}
		spec.Launch = launchDigest(argv, v.Release.Digest()+former(v, e.IID), file.SHA256, v.Facts["proc/engine-"+e.IID+"/id"], spec.Unit)
		start := gates.LaunchStep(v.Fleet, "E/sidecar/"+e.IID, host, spec, stopWithin)
		port := gates.FreeStep(v.Fleet, "E/port/"+e.IID, host, sidecarName(e.IID), address)
		port.Engine = e.IID
		start.Engine, start.Yields, start.Needs, start.Title = e.IID, sidecarKey(e.IID), []string{put.ID, port.ID}, "start the sidecar of "+e.IID
		steps, before = append(steps, put, port, start), []string{start.ID}
	}
	if !v.Wants(sidecarKey(e.IID)) && !v.Wants(statementKey(e.IID)) {
		return steps, nil
	}
	args, err := json.Marshal(askArgs{Host: host, Address: address})
	if err != nil {
		return nil, err
	}
	return append(steps, gates.Step{
		ID: "E/statement/" + e.IID, Title: "ask " + e.IID + " for a statement", Engine: e.IID, Effect: gates.Observe, Yields: statementKey(e.IID), Limit: hashLimit,
		Local: &gates.LocalCall{Op: "ask", Args: args}, Needs: before,
	}), nil
}

// former is the process that a repetition of this gate replaces: a sidecar that has seen another process
// than its own speaks for none any more, and runs. "" = it is no repetition.
func former(v gates.View, iid string) string {
	if v.Because(sidecarKey(iid)) != gates.AskedToRepeat("E") {
		return ""
	}
	return v.Bound(sidecarKey(iid), "proc/"+sidecarName(iid)+"/id")
}

// observed reports whether gate C's evidence of an engine is there to be read.
func observed(v gates.View, iid string) bool {
	for _, k := range []record.Key{liveKey(iid), record.NewKey("C", "cache", iid)} {
		if _, err := v.Evidence(k); err != nil {
			return false
		}
	}
	return true
}

// sidecarAddress is where the engine's sidecar listens.
func sidecarAddress(e fleet.Engine) (string, error) {
	u, err := url.Parse(e.AttestationURL)
	if err != nil || u.Hostname() == "" || u.Port() == "" {
		return "", fmt.Errorf("read attestation_url of %s: want http://host:port/v1/attestation", e.IID)
	}
	return net.JoinHostPort(u.Hostname(), u.Port()), nil
}

// Facts are the sidecar's process.
func (Gate) Facts(key record.Key, data []byte) map[string]string {
	var l gates.Launched
	if key.Kind() != "sidecar" || json.Unmarshal(data, &l) != nil || l.Name != sidecarName(key.Subjects()[0]) {
		return nil
	}
	return l.ProcessFacts()
}

type askArgs struct {
	Host    string `json:"host"`
	Address string `json:"address"`
}

// Stated is a sidecar's answer to a nonce.
type Stated struct {
	Nonce  string          `json:"nonce"`
	Bundle json.RawMessage `json:"bundle"`
}

// Locals are the operations of the gate that run on the workstation.
func (Gate) Locals() map[string]gates.Local {
	return map[string]gates.Local{"ask": func(ctx context.Context, env gates.Env, raw json.RawMessage) ([]byte, error) {
		var a askArgs
		if err := json.Unmarshal(raw, &a); err != nil {
			return nil, err
		}
		s := Stated{Nonce: attest.NewNonce()}
		var err error
		if s.Bundle, err = ask(ctx, env.Dial, a, s.Nonce); err != nil {
			return nil, err
		}
		return json.Marshal(s)
	}}
}

// Dial opens a connection to address as seen from the host.
type Dial func(ctx context.Context, host, address string) (net.Conn, error)

// ask posts the nonce to the sidecar, through its host, until it answers.
func ask(ctx context.Context, dial Dial, a askArgs, nonce string) (json.RawMessage, error) {
	client := &http.Client{Transport: &http.Transport{
		DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx, a.Host, a.Address) },
		DisableKeepAlives: true,
	}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	body, err := json.Marshal(map[string]string{"nonce": nonce})
	if err != nil {
		return nil, err
	}
	wait := time.NewTicker(100 * time.Millisecond)
	defer wait.Stop()
	until := time.Now().Add(startWait)
	for {
		b, err := post(ctx, client, "http://"+a.Address+"/v1/statement", body)
		if err == nil || !errors.Is(err, errLooking) && time.Now().After(until) {
			return b, err
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(err, ctx.Err())
		case <-wait.C:
		}
	}
}

// errLooking says that the sidecar still reads the model's files.
var errLooking = errors.New("ask the sidecar: it still reads the model's files")

// startWait is how long a sidecar may take until it listens.
const startWait = 10 * time.Second

func post(ctx context.Context, c *http.Client, to string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.Do(req)
	if err != nil {
		return nil, fmt.Errorf("ask the sidecar: %w", err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, attest.MaxBundle))
	if err != nil {
		return nil, fmt.Errorf("read the sidecar's answer: %w", err)
	}
	var refused struct {
		Error struct {
			Code string `json:"code"`
		} `json:"error"`
	}
	if resp.StatusCode == http.StatusServiceUnavailable && json.Unmarshal(b, &refused) == nil && refused.Error.Code == attest.CodeLooking {
		return nil, errLooking
	}
	if resp.StatusCode != http.StatusOK || !json.Valid(b) {
		return nil, fmt.Errorf("ask the sidecar: it answered %d", resp.StatusCode)
	}
	return b, nil
}
