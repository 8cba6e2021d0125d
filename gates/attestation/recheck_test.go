package attestation

import (
	"slices"
	"strings"
	"testing"

	"github.com/narwhal-fleet/narwhal/gates/record"
)

// TestRecheck asks a live sidecar again and holds its answer against the record.
func TestRecheck(t *testing.T) {
	r := newRig(t)
	dial := (&env{t: t, address: r.sidecar}).Dial
	if found, err := Recheck(limited(t), dial, view(t, r.fleet, r.evidence), "e"); err != nil || len(found) > 0 {
		t.Fatalf("found %v, %v", found, err)
	}
	_, other := keyPair(t)
	l := r.live
	l.PID++
	for name, c := range map[string]struct {
		key   record.Key
		value any
		want  string
	}{
		"another key":     {key: "B/key/h1", value: map[string]string{"public": other}, want: "statement-"},
		"another process": {key: "C/live/e", value: l, want: "statement-"},
	} {
		was := r.evidence[c.key]
		r.evidence[c.key] = c.value
		found, err := Recheck(limited(t), dial, view(t, r.fleet, r.evidence), "e")
		if err != nil || !slices.ContainsFunc(codesOf(found), func(s string) bool { return strings.HasPrefix(s, c.want) }) {
			t.Errorf("%s: found %v, %v", name, found, err)
		}
		r.evidence[c.key] = was
	}
	delete(r.evidence, "B/key/h1")
	if found, err := Recheck(limited(t), dial, view(t, r.fleet, r.evidence), "e"); err == nil {
		t.Errorf("without a key: found %v", found)
	}
	r.fleet.Engines[0].AttestationURL = ""
	if found, err := Recheck(limited(t), dial, view(t, r.fleet, r.evidence), "e"); err == nil {
		t.Errorf("without a sidecar: found %v", found)
	}
}

func codesOf(found []record.Finding) (out []string) {
	for _, f := range found {
		if f.Message == "" || f.Hint == "" {
			return []string{"says too little"}
		}
		out = append(out, f.Code)
	}
	return out
}
