package standby

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var references = []string{"testdata/reference-handoff.json", "testdata/reference-handoff-contracted.json"}

func readFile(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestReferenceDocuments reads what the reference wrote and writes the same members, in
// the same order where the contract fixes their names.
func TestReferenceDocuments(t *testing.T) {
	for _, name := range references {
		text := readFile(t, name)
		d, err := Decode(text)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got, err := d.Encode()
		if err != nil {
			t.Fatal(err)
		}
		var a, b any
		if json.Unmarshal(text, &a) != nil || json.Unmarshal(got, &b) != nil {
			t.Fatal("no JSON")
		}
		if diff := cmp.Diff(a, b); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if diff := cmp.Diff(fixedNames(text), fixedNames(got)); diff != "" {
			t.Errorf("%s: order: %s", name, diff)
		}
		if again, err := Decode(got); err != nil || !cmp.Equal(again, d) {
			t.Errorf("%s: %v: %s", name, err, cmp.Diff(d, again))
		}
	}
}

// fixedNames are the member names in their order, without those that come from the fleet.
func fixedNames(text []byte) (names []string) {
	free := []string{"prefill", "decode", "p0", "p1", "d0", "d1", "engine_rejected", "engine_error", "engine_overloaded", "engine_timeout", "deadline", "prompt", "queue", "first_token_timeout"}
	dec := json.NewDecoder(bytes.NewReader(text))
	for {
		tok, err := dec.Token()
		if err != nil {
			return names
		}
		if s, ok := tok.(string); ok && !slices.Contains(free, s) {
			names = append(names, s)
		}
	}
}

func TestEmptyDocument(t *testing.T) {
	d := NewDocument()
	b, err := d.Encode()
	if err != nil || bytes.Count(b, []byte("null")) != 1 {
		t.Fatalf("%s, %v", b, err)
	}
	if _, err := Decode(b); err != nil {
		t.Error(err)
	}
}

func TestVersions(t *testing.T) {
	text := string(readFile(t, references[0]))
	for value, want := range map[string]string{
		"2":   "handoff version 2 is newer than 1, which this router reads",
		"0":   "handoff version 0 is unreadable, want 1",
		"1.5": "handoff version 1.5 is unreadable, want 1",
		`"1"`: `handoff version "1" is unreadable, want 1`,
	} {
		_, err := Decode([]byte(strings.Replace(text, `"schema_version": 1`, `"more": {}, "schema_version": `+value, 1)))
		var version *VersionError
		if !errors.As(err, &version) || err.Error() != want || version.Newer != (value == "2") {
			t.Errorf("%s: %v", value, err)
		}
	}
	var version *VersionError
	if _, err := Decode([]byte(`{"schema": "narwhal.handoff"}`)); !errors.As(err, &version) {
		t.Errorf("none: %v", err)
	}
}

func TestDecodeRefuses(t *testing.T) {
	text := string(readFile(t, references[1]))
	for name, swap := range map[string][2]string{
		"another schema":        {"narwhal.handoff", "narwhal.fleet"},
		"unknown top member":    {`"run":`, `"extra": 1, "run":`},
		"missing top member":    {`"run": "1795971932-109febdb",`, ``},
		"a member twice":        {`"run":`, `"run": "x", "run":`},
		"another case":          {`"run":`, `"Run":`},
		"null list":             {`"ejected": []`, `"ejected": null`},
		"null counter":          {`"served": 3`, `"served": null`},
		"negative counter":      {`"served": 3`, `"served": -3`},
		"float counter":         {`"served": 3`, `"served": 3.5`},
		"huge counter":          {`"served": 3`, `"served": 99999999999999999999`},
		"counter beyond reach":  {`"served": 3`, `"served": 9007199254740992`},
		"unknown counter":       {`"served":`, `"swerved": 1, "served":`},
		"missing reasons":       {`"rejected": {},`, ``},
		"unsorted engines":      {`"d0",`, `"z0",`},
		"a role too few":        {`"p0": "prefill",`, ``},
		"another role":          {`"prefill"`, `"both"`},
		"ejected stranger":      {`"ejected": []`, `"ejected": ["x"]`},
		"ejected twice":         {`"ejected": []`, `"ejected": ["d0", "d0"]`},
		"strange suspect":       {`"inference_sources": {}`, `"inference_sources": {"x": []}`},
		"strange producer":      {`"inference_sources": {}`, `"inference_sources": {"d0": ["x"]}`},
		"null producers":        {`"inference_sources": {}`, `"inference_sources": {"d0": null}`},
		"holder without epoch":  {`"epoch": 2`, `"epoch": 0`},
		"negative epoch":        {`"epoch": 2`, `"epoch": -2`},
		"time":                  {`"at": 1795971978.8356767`, `"at": -1`},
		"unknown state":         {`"state": "blocked"`, `"state": "asleep"`},
		"unknown record member": {`"iid": "d0",`, `"iid": "d0", "x": 1,`},
		"record of a stranger":  {`"iid": "d0",`, `"iid": "d9",`},
		"another policy":        {`"individual"`, `"sometimes"`},
		"event without action":  {`"action": "drain_started",`, ``},
		"start of a stranger":   {`"p0": 1795971862.280263`, `"x": 1795971862.280263`},
		"risk without age":      {`"demand_risk": null`, `"demand_risk": {"kind": "k", "events": {}}`},
		"control characters":    {`"demo/model-1b"`, `"demo\u001b[2J"`},
		"a list":                {text, `[]`},
		"two documents":         {text, text + text},
		"nothing":               {text, ``},
	} {
		if !strings.Contains(text, swap[0]) {
			t.Fatalf("%s: the reference has no %s", name, swap[0])
		}
		var bad *MalformedError
		if _, err := Decode([]byte(strings.Replace(text, swap[0], swap[1], 1))); !errors.As(err, &bad) {
			t.Errorf("%s: %v", name, err)
		}
	}
	var bad *MalformedError
	if _, err := Decode(make([]byte, MaxDocument+1)); !errors.As(err, &bad) {
		t.Errorf("too long: %v", err)
	}
}

func TestFits(t *testing.T) {
	d, err := Decode(readFile(t, references[0]))
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Fits([]string{"p0", "d1", "d0", "p1"}, "individual"); err != nil {
		t.Error(err)
	}
	if d.Fits([]string{"p0", "d1", "d0"}, "individual") == nil || d.Fits(d.Engines, "whole_wave") == nil {
		t.Error("another fleet fits")
	}
}

func FuzzDecode(f *testing.F) {
	for _, name := range references {
		f.Add(readFile(f, name))
	}
	f.Add([]byte(`{"schema": "narwhal.handoff", "schema_version": 1e0}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := Decode(data)
		if err != nil {
			var bad *MalformedError
			var version *VersionError
			if !errors.As(err, &bad) && !errors.As(err, &version) {
				t.Fatalf("%v", err)
			}
			return
		}
		b, err := d.Encode()
		if err != nil {
			t.Fatalf("read and cannot be written: %v", err)
		}
		again, err := Decode(b)
		if err != nil {
			t.Fatalf("written and cannot be read: %v\n%s", err, b)
		}
		if !cmp.Equal(d, again) {
			t.Fatalf("%s", cmp.Diff(d, again))
		}
	})
}
