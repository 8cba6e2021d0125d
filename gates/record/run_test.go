package record

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
)

func TestChainAsAnOutsiderReadsIt(t *testing.T) {
	r := create(t)
	fill(t, r)
	lines := bytes.Split(bytes.TrimSuffix(mustRead(t, filepath.Join(r.Dir(), LogFile)), []byte("\n")), []byte("\n"))
	prev := strings.Repeat("0", 64)
	for i, line := range lines {
		var ev map[string]any
		if err := json.Unmarshal(line, &ev); err != nil {
			t.Fatal(err)
		}
		if ev["prev"] != prev || ev["seq"] != float64(i+1) {
			t.Fatalf("line %d: seq %v prev %v; want prev %s", i+1, ev["seq"], ev["prev"], prev)
		}
		for _, name := range []string{"time", "kind", "body"} {
			if _, ok := ev[name]; !ok {
				t.Fatalf("line %d lacks %s", i+1, name)
			}
		}
		sum := sha256.Sum256(line)
		prev = hex.EncodeToString(sum[:])
	}
	if seq, digest := r.Head(); seq != int64(len(lines)) || digest != prev {
		t.Fatalf("head is %d %s; want %d %s", seq, digest, len(lines), prev)
	}
}

func TestStateIsTheSameHoweverItIsRead(t *testing.T) {
	r := create(t)
	fill(t, r)
	snap, err := Read(r.Dir())
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(snap.State, r.State()) || !reflect.DeepEqual(FoldAll(snap.Events), r.State()) {
		t.Fatalf("read:  %+v\nwrote: %+v", snap.State, r.State())
	}
	want := r.State()
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := Open(r.Dir(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if !reflect.DeepEqual(again.State(), want) {
		t.Fatalf("opened: %+v\nwrote: %+v", again.State(), want)
	}
	if _, err := again.Append(KindNote, "", "", "", Note{Text: "after"}); err != nil {
		t.Fatal(err)
	}
	if rep := mustVerify(t, r.Dir()); len(rep.Problems) > 0 || len(rep.Notices) > 0 {
		t.Fatalf("verify: %+v", rep)
	}
}

func TestOnlyOneWriter(t *testing.T) {
	r := create(t)
	if _, err := Open(r.Dir(), Options{}); !errors.Is(err, ErrBusy) {
		t.Fatalf("second open: %v; want ErrBusy", err)
	}
	if _, err := Create(r.Dir(), testHeader(), Options{}); err == nil {
		t.Fatal("created over a record")
	}
	if _, err := Open(t.TempDir(), Options{}); !errors.Is(err, ErrNoRecord) {
		t.Fatalf("open of nothing: %v; want ErrNoRecord", err)
	}
}

func TestAppendRefusesWhatDoesNotBelong(t *testing.T) {
	r := create(t)
	ref := Ref{SHA256: strings.Repeat("a", 64), Media: "m"}
	cases := map[string]struct {
		kind Kind
		body any
	}{
		"unknown kind":       {"gate.wished", Note{}},
		"body of other kind": {KindVerdict, Note{Text: "x"}},
		"second creation":    {KindCreated, Created{Run: "x", FleetName: "y", Fleet: ref}},
		"unknown status":     {KindOutcome, Outcome{Status: "fine"}},
		"unknown effect":     {KindIntent, Intent{Effect: "wish"}},
		"unknown verdict":    {KindVerdict, Verdict{State: "skipped"}},
		"key without kind":   {KindEvidence, Evidence{Key: "A", Ref: ref}},
		"digest of no form":  {KindEvidence, Evidence{Key: "A/host/h", Ref: Ref{SHA256: "../../etc/passwd"}}},
		"no object":          {KindNote, []string{"x"}},
		"too large":          {KindNote, Note{Text: strings.Repeat("x", MaxLine)}},
		"not encodable":      {KindNote, func() {}},
	}
	before, _ := r.Head()
	for name, c := range cases {
		if _, err := r.Append(c.kind, "A", "", "", c.body); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := r.Append(KindNote, "", "", "", Note{Text: strings.Repeat("x", MaxLine)}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("too large: %v", err)
	}
	if after, _ := r.Head(); after != before {
		t.Fatalf("head moved from %d to %d", before, after)
	}
	add(t, r, KindNote, "\xff", "\xfe\u2028<", "h\x00", Note{Text: "still \xff open"})
	if rep := mustVerify(t, r.Dir()); len(rep.Problems) > 0 {
		t.Fatalf("verify: %+v", rep.Problems)
	}
}

func TestNothingIsAppendedAfterAFailedWrite(t *testing.T) {
	r := create(t)
	if err := r.log.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := r.Append(KindNote, "", "", "", Note{}); !errors.Is(err, os.ErrClosed) {
			t.Fatalf("append: %v", err)
		}
	}
	f, err := os.OpenFile(filepath.Join(r.Dir(), LogFile), os.O_RDWR|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	r.log = f // the disk works again; the record does not know what is on it
	if _, err := r.Append(KindNote, "", "", "", Note{}); err == nil {
		t.Fatal("appended after a failed write")
	}
}

func TestAppendFromManyGoroutines(t *testing.T) {
	r := create(t)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 10 {
				if _, err := r.Append(KindNote, "", "", "", Note{Text: "n"}); err != nil {
					t.Error(err)
				}
				if _, err := r.Store("text/plain", []byte("same")); err != nil {
					t.Error(err)
				}
				r.State()
			}
		})
	}
	wg.Wait()
	rep := mustVerify(t, r.Dir())
	if rep.Events != 81 || len(rep.Problems) > 0 {
		t.Fatalf("%d events, problems %+v", rep.Events, rep.Problems)
	}
}

func TestStoreAndLoad(t *testing.T) {
	r := create(t)
	ref, err := r.Store("text/plain", []byte("evidence"))
	if err != nil {
		t.Fatal(err)
	}
	again, err := r.Store("text/plain", []byte("evidence"))
	if err != nil || again != ref {
		t.Fatalf("stored again as %v, %v", again, err)
	}
	if b, err := r.Load(ref); err != nil || string(b) != "evidence" {
		t.Fatalf("loaded %q, %v", b, err)
	}
	path := objectPath(r.Dir(), ref.SHA256)
	for _, bad := range []string{"evidencE", "evidence ", ""} {
		mustWrite(t, path, []byte(bad))
		var d *DigestError
		if _, err := r.Load(ref); !errors.As(err, &d) || d.SHA256 != ref.SHA256 {
			t.Fatalf("load of %q: %v; want DigestError", bad, err)
		}
	}
	if _, err := r.Store("text/plain", []byte("evidence")); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Load(ref); err != nil {
		t.Fatalf("stored over damaged bytes: %v", err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Load(ref); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("load of a missing object: %v", err)
	}
	if _, err := r.Load(Ref{SHA256: "../log.jsonl"}); err == nil {
		t.Fatal("loaded a path")
	}
}
