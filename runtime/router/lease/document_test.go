package lease

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestReferenceFiles reads what the reference wrote and writes the same bytes.
func TestReferenceFiles(t *testing.T) {
	for name, epoch := range map[string]int64{"reference-lease.json": 1, "reference-lease-after-takeover.json": 2} {
		b, err := os.ReadFile("testdata/" + name)
		if err != nil {
			t.Fatal(err)
		}
		d, err := Decode(b)
		if err != nil || d.Epoch != epoch || d.ExpiresAt-d.UpdatedAt != 5 {
			t.Fatalf("%s: %+v, %v", name, d, err)
		}
		if got := d.Encode(); !bytes.Equal(bytes.TrimSpace(got), bytes.TrimSpace(b)) {
			t.Errorf("wrote\n%s, want\n%s", got, b)
		}
	}
}

func TestWholeSecondsStayFloats(t *testing.T) {
	d := Make("a", 1, time.Unix(1800000000, 0), 5*time.Second)
	if text := string(d.Encode()); !strings.Contains(text, `"expires_at": 1800000005.0,`) {
		t.Error(text)
	}
}

func TestDecodeRefuses(t *testing.T) {
	const good = `{"epoch": 1, "expires_at": 2.5, "holder": "h", "schema": "narwhal.router-lease", "schema_version": 1, "updated_at": 1.5}`
	if _, err := Decode([]byte(good)); err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string]string{
		"nothing":         "",
		"torn":            good[:40],
		"a list":          "[]",
		"null":            "null",
		"two documents":   good + good,
		"a missing key":   strings.Replace(good, `"epoch": 1, `, "", 1),
		"an unknown key":  strings.Replace(good, `{`, `{"more": 1, `, 1),
		"a key twice":     strings.Replace(good, `{`, `{"epoch": 1, `, 1),
		"another case":    strings.Replace(good, `epoch`, `Epoch`, 1),
		"epoch 0":         strings.Replace(good, `"epoch": 1`, `"epoch": 0`, 1),
		"a float epoch":   strings.Replace(good, `"epoch": 1`, `"epoch": 1.0`, 1),
		"a text epoch":    strings.Replace(good, `"epoch": 1`, `"epoch": "1"`, 1),
		"a huge epoch":    strings.Replace(good, `"epoch": 1`, `"epoch": 9223372036854775807`, 1),
		"a list inside":   strings.Replace(good, `2.5`, `[2.5]`, 1),
		"a null":          strings.Replace(good, `2.5`, `null`, 1),
		"a huge time":     strings.Replace(good, `2.5`, `1e300`, 1),
		"a negative time": strings.Replace(good, `2.5`, `-1`, 1),
		"no holder":       strings.Replace(good, `"h"`, `""`, 1),
		"an escape":       strings.Replace(good, `"h"`, `"\u001b[2J"`, 1),
		"another schema":  strings.Replace(good, `router-lease`, `fleet`, 1),
		"another version": strings.Replace(good, `"schema_version": 1`, `"schema_version": 2`, 1),
		"not UTF-8":       strings.Replace(good, `"h"`, "\"\xff\"", 1),
		"too long":        good + strings.Repeat(" ", maxDocument),
	} {
		var bad *MalformedError
		if _, err := Decode([]byte(data)); !errors.As(err, &bad) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, name := range []string{"reference-lease.json", "reference-lease-after-takeover.json"} {
		b, err := os.ReadFile("testdata/" + name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte(`{"epoch": 1e0, "x": {"y": []}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := Decode(data)
		if err != nil {
			var bad *MalformedError
			if !errors.As(err, &bad) {
				t.Fatalf("%v", err)
			}
			return
		}
		if again, err := Decode(d.Encode()); err != nil || again != d {
			t.Fatalf("%+v became %+v, %v", d, again, err)
		}
	})
}

func TestTiming(t *testing.T) {
	if err := (Timing{DefaultTTL, DefaultRenew, DefaultMargin}).Check(); err != nil {
		t.Error(err)
	}
	for _, bad := range []Timing{{2 * time.Second, time.Second, time.Second}, {time.Second, 0, 0}, {time.Second, time.Millisecond, -1}} {
		if bad.Check() == nil {
			t.Errorf("%+v passes", bad)
		}
	}
}

// TestValidNeedsBothClocks builds readings whose clocks disagree, as after a step of the
// wall clock.
func TestValidNeedsBothClocks(t *testing.T) {
	now := time.Now()
	term := Term{ValidUntil: now.Add(time.Second)}
	if !term.Valid(now) || term.Valid(now.Add(time.Second)) {
		t.Error("the plain case is wrong")
	}
	stepped := now.Round(0).Add(2 * time.Second) // wall only: two seconds later
	if term.Valid(stepped) {
		t.Error("a step of the wall clock past the stored expiry leaves the term valid")
	}
}

func TestNewHolder(t *testing.T) {
	a, b := NewHolder("router-a"), NewHolder("router-a")
	if a == b || !strings.HasPrefix(a, "router-a:") || len(a) != len("router-a:")+32 {
		t.Errorf("%s, %s", a, b)
	}
}

// One text for what is missing or wrong, however often it is read.
func TestRefusalsAreOneText(t *testing.T) {
	for text, want := range map[string]string{
		"{}":                             "missing keys: epoch, expires_at, holder, schema, schema_version, updated_at",
		`{"epoch":1,"schema":"x","y":1}`: "missing keys: expires_at, holder, schema_version, updated_at",
		`{"epoch":"1","expires_at":1,"holder":2,"schema":"x","schema_version":1,"updated_at":-1}`: "keys with a wrong value: epoch, holder, updated_at",
	} {
		for range 20 {
			if _, err := Decode([]byte(text)); err == nil || !strings.HasSuffix(err.Error(), want) {
				t.Fatalf("%s: %v", text, err)
			}
		}
	}
}

// The last epoch that can be read has none after it: the claim says so, and nothing is written.
func TestNoEpochIsLeft(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lease.json")
	last := Make("b:0123", maxEpoch-1, time.Now().Add(-time.Hour), time.Second).Encode()
	if _, err := Decode(last); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, last, 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := NewFile(FileOptions{Path: path, Holder: NewHolder("a"), TTL: testTTL, Margin: testMargin})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Claim(t.Context()); !errors.Is(err, ErrNoEpoch) {
		t.Errorf("%v", err)
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, last) {
		t.Errorf("%s, %v", got, err)
	}
}
