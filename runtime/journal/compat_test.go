package journal

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/narwhal-fleet/narwhal/runtime/model"
)

// recordings are the reference's journals, from which the rows of each kind are compared.
var recordings = []string{"reference-journal.jsonl", "reference-breaker.jsonl", "reference-lifecycle.jsonl", "reference-topologies.jsonl"}

func eachRecorded(t *testing.T, f func(raw string, l Line)) {
	t.Helper()
	for _, name := range recordings {
		b, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		for raw := range strings.Lines(string(b)) {
			n := 0
			st, err := Read(strings.NewReader(raw), func(l Line) error { n++; f(raw, l); return nil })
			if err != nil || st.Bad > 0 || st.Torn || n != 1 {
				t.Fatalf("%s: %+v, %v in %s", name, st, err, raw)
			}
		}
	}
}

// keysOf lists an object's keys in order, nested ones as a.b; maps by engine id and lists
// count as one value.
func keysOf(t *testing.T, raw []byte) []string {
	t.Helper()
	var out []string
	d := json.NewDecoder(bytes.NewReader(raw))
	tok, err := d.Token()
	if err != nil || tok != json.Delim('{') {
		t.Fatalf("no object: %s", raw)
	}
	for d.More() {
		k, err := d.Token()
		if err != nil {
			t.Fatal(err)
		}
		var v json.RawMessage
		if err := d.Decode(&v); err != nil {
			t.Fatal(err)
		}
		key, _ := k.(string)
		out = append(out, key)
		switch key {
		case "queue_waits", "admission_price", "upstream_seconds", "meta", "admission":
			if v[0] == '{' {
				for _, inner := range keysOf(t, v) {
					out = append(out, key+"."+inner)
				}
			}
		}
	}
	return out
}

// TestRowsHaveTheReferencesKeys writes each recorded row with our types: no key may be
// missing, come in another order, or be null where it was not; at_unix, finish_reason,
// slo_met and decision are ours.
func TestRowsHaveTheReferencesKeys(t *testing.T) {
	e := newEncoder("run")
	ours := []string{"at_unix", "finish_reason", "slo_met", "decision"}
	kinds := map[string]int{}
	eachRecorded(t, func(raw string, l Line) {
		var b []byte
		switch {
		case l.Meta != nil:
			kinds["meta"]++
			b = e.meta(*l.Meta)
			ours := []string{"meta.params", "meta.at_unix"}
			same(t, keysOf(t, []byte(raw)), keysOf(t, b), ours)
			return
		case l.Row == nil:
			return
		}
		kinds[l.Row.Terminal]++
		b, err := e.line(&item{row: *l.Row})
		if err != nil {
			t.Fatal(err)
		}
		same(t, keysOf(t, []byte(raw)), keysOf(t, b), ours)
		nulls(t, []byte(raw), b)
	})
	for _, k := range []string{"meta", Completed, Failed, Refused, Rejected, Expired, Invalid, Cancelled} {
		if kinds[k] == 0 {
			t.Errorf("no recorded %s row", k)
		}
	}
}

func same(t *testing.T, theirs, all, ours []string) {
	t.Helper()
	got := slices.DeleteFunc(slices.Clone(all), func(k string) bool { return slices.Contains(ours, k) })
	if !slices.Equal(theirs, got) {
		t.Errorf("keys\n%v, want\n%v", got, theirs)
	}
}

// nulls checks that a value is null in both rows or in neither.
func nulls(t *testing.T, a, b []byte) {
	t.Helper()
	var x, y map[string]json.RawMessage
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		t.Fatal("no JSON")
	}
	for k, v := range x {
		if (string(v) == "null") != (string(y[k]) == "null") {
			t.Errorf("%s: %s, want %s", k, y[k], v)
		}
	}
}

// TestEventsHaveTheReferencesHead writes each recorded event again: head first, all fields.
func TestEventsHaveTheReferencesHead(t *testing.T) {
	e := newEncoder("run")
	eachRecorded(t, func(raw string, l Line) {
		if l.Event == nil {
			return
		}
		b, err := e.line(&item{event: l.Event})
		if err != nil {
			t.Fatal(err)
		}
		theirs, ours := keysOf(t, []byte(raw)), keysOf(t, b)
		if !slices.Equal(ours[:6], headKeys) {
			t.Errorf("head %v", ours[:6])
		}
		slices.Sort(theirs)
		slices.Sort(ours)
		same(t, theirs, ours, []string{"at_unix"})
	})
}

func TestFlagsStandOnlyWhereTheyHold(t *testing.T) {
	flags := []string{"refused", "refused_cause", "rejected", "readiness_reason", "expired", "cancelled", "cancelled_phase"}
	for terminal, c := range map[string]struct {
		set  func(*Row)
		want []string
	}{
		Completed: {func(*Row) {}, nil},
		Refused:   {func(r *Row) { r.Refused, r.RefusedCause = true, model.ReasonTPOT.Cause() }, flags[:2]},
		Rejected:  {func(r *Row) { r.Rejected, r.ReadinessReason = true, "shadowing" }, flags[2:4]},
		Expired:   {func(r *Row) { r.Expired = true }, flags[4:5]},
		Cancelled: {func(r *Row) { r.Cancelled, r.CancelledPhase = true, "decode" }, flags[5:]},
	} {
		r := Row{Terminal: terminal}
		c.set(&r)
		b, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, k := range keysOf(t, b) {
			if slices.Contains(flags, k) {
				got = append(got, k)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", terminal, got, c.want)
		}
	}
}
