package lifecycle

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
)

const outdated = `"engines":{"d1":{"state":"blocked","draining":true,"error":"profile of engine d1 is of another generation than the live process"},` +
	`"d2":{"state":"blocked","draining":true,"error":"verify engine d2: its profile was measured on another launch"},` +
	`"d3":{"state":"blocked","draining":true,"error":"health: no answer"},"d4":{"state":"drained","draining":true,"error":"is of another generation than the live process"}},"error":"profile generation: no"`

// A wait for what only a new profile mends ends at once, and names who needs one.
func TestWaitEndsWhereAProfileIsMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		for _, c := range []struct {
			target Target
			want   []string
		}{{Target{IID: "d1"}, []string{"d1"}}, {Target{IID: "d2"}, []string{"d2"}}} {
			s := &script{t: t, lines: []string{"GET lifecycle 200 " + outdated, "POST readmit 409 " + outdated}}
			cl, _ := New("http://router.example", fleet.Secret{}, s)
			var old *Outdated
			if _, err := cl.ReadmitUntil(t.Context(), c.target, func(Document) {}); !errors.As(err, &old) || !slices.Equal(old.IIDs, c.want) || !strings.HasPrefix(old.Error(), c.want[0]+": ") {
				t.Errorf("%v: %v", c.target, err)
			}
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("waited %s", took)
		}
	})
	d, err := parseDocument([]byte(`{"schema":"narwhal.lifecycle","schema_version":1,` + outdated + `}`))
	if err != nil {
		t.Fatal(err)
	}
	if old := (Target{All: true}).Outdated(d); old == nil || !slices.Equal(old.IIDs, []string{"d1", "d2"}) {
		t.Errorf("of the fleet: %+v", old)
	}
	for _, iid := range []string{"d3", "d4", "d9"} {
		if old := (Target{IID: iid}).Outdated(d); old != nil {
			t.Errorf("%s: %+v", iid, old)
		}
	}
}

func TestActivateOrder(t *testing.T) {
	for _, c := range []struct {
		engines []string
		digest  string
		want    string
	}{
		{[]string{"d1", "d2"}, "ab", `{"engines":["d1","d2"],"sha256":"ab"}`},
		{[]string{"d1"}, "", `{"engines":["d1"]}`},
		{nil, "", `{"wave":true}`},
	} {
		s := &script{t: t, lines: []string{"POST activate 200 " + active}}
		cl, _ := New("http://router.example", fleet.Secret{}, s)
		if _, err := cl.Activate(t.Context(), c.engines, c.digest); err != nil || len(s.sent) != 1 || s.sent[0] != c.want {
			t.Errorf("%v: %v, sent %q", c.engines, err, s.sent)
		}
	}
}

// An ejected engine is told from one that is held.
func TestStateTellsEjected(t *testing.T) {
	s, err := parseState([]byte(`{"schema":"narwhal.state","schema_version":1,"lifecycle":{"engines":{"d1":{"state":"active"},"d2":{"state":"drained","draining":true}}},"ejected":["d1"]}`))
	if err != nil || !s.List[0].Ejected || s.List[0].Live || s.List[1].Ejected || s.List[1].Live {
		t.Errorf("%+v %v", s.List, err)
	}
}
