package attest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/narwhal-fleet/narwhal/attest/look"
)

// observedRefusals has one refusal for each thing that is looked at.
var observedRefusals = map[string]error{
	look.Container: ErrContainer, look.Checkpoint: ErrCheckpoint, look.Tokenizer: ErrTokenizer, look.EngineConfig: ErrEngineConfig,
	look.UCX: ErrUCXVersion, look.NIXL: ErrNIXLVersion, look.Transports: ErrTransports, look.GPUs: ErrGPUs,
	look.Listener: ErrListener, look.Changed: ErrChanged,
}

// unlike compares an observation with the one before. Two things are wrong whatever was
// seen before: another process listens, or files changed under the running engine.
func (p EnginePolicy) unlike(got look.Observed) []error {
	var out []error
	if got == nil {
		if p.Observed != nil {
			out = append(out, ErrObservation)
		}
		return out
	}
	if s := got[look.Listener]; slices.Contains(s.Is, look.Other) {
		out = append(out, ErrListener)
	}
	if s := got[look.Changed]; len(s.Is) > 0 && !slices.Contains(s.Is, look.None) {
		out = append(out, fmt.Errorf("%w: %s", ErrChanged, clip(strings.Join(s.Is, ", "))))
	}
	for _, d := range look.Diff(p.Observed, got) {
		kind := observedRefusals[d.Name]
		if d.Name == look.Changed || d.Name == look.Listener && d.Got == look.Other {
			continue // said above
		}
		out = append(out, fmt.Errorf("%w: want %s, got %s", kind, clip(d.Want), clip(d.Got)))
	}
	return out
}

// WatchOf reads from a document's launch where to look. A launch without it watches nothing.
func WatchOf(d Document) (look.Watch, error) {
	var w look.Watch
	v, ok := d.Launch["watch"]
	if !ok {
		return w, nil
	}
	b, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(b, &w)
	}
	if err != nil {
		return w, fmt.Errorf("read launch.watch: %w: %w", ErrDocument, err)
	}
	return w, nil
}

// LookerOf looks where the document's launch says.
func LookerOf(d Document) (Looker, error) {
	w, err := WatchOf(d)
	if err != nil {
		return nil, err
	}
	return look.New(w, true), nil
}

// WatchTree is a watch as a value of a document's launch.
func WatchTree(w look.Watch) (any, error) {
	b, err := json.Marshal(w)
	if err != nil {
		return nil, err
	}
	var v map[string]any
	return v, json.Unmarshal(b, &v)
}
