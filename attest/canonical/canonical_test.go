package canonical

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// Vectors of the reference implementation, operations.md §1.3 of its contract.
func TestReferenceVectors(t *testing.T) {
	for _, c := range []struct{ text, canonical, digest string }{
		{`{"b": 2, "a": {"y": [1, 2.5], "x": "z"}}`, `{"a":{"x":"z","y":[1,2.5]},"b":2}`,
			"sha256:9784c3f70e2a4d482b22d2c373a8c82ee95e042837e81fe35e91d995b9babbd0"},
		{`{"a":1.0,"b":[1e16,0.00001,0.0001,123456789.123,1e22,5e-324],"n":null,"t":true,"é":"🐳é"}`,
			`{"a":1.0,"b":[1e+16,1e-05,0.0001,123456789.123,1e+22,5e-324],"n":null,"t":true,"\u00e9":"\ud83d\udc33\u00e9"}`,
			"sha256:bdf7ee72811ce1f4bcbdde9dae1057038179341ce2918190924dbdc8e8302fb1"},
	} {
		got, err := Text([]byte(c.text))
		if err != nil || string(got) != c.canonical {
			t.Errorf("text %s, %v; want %s", got, err, c.canonical)
		}
		v, err := Parse([]byte(c.text))
		if err != nil {
			t.Fatal(err)
		}
		if d, err := Digest(v); err != nil || d != c.digest {
			t.Errorf("digest %s, %v; want %s", d, err, c.digest)
		}
	}
}

func TestNumbersAndStrings(t *testing.T) {
	for in, want := range map[string]string{
		`0`: `0`, `-0`: `0`, `-0.0`: `-0.0`, `0.0`: `0.0`, `1E2`: `100.0`, `100`: `100`,
		`9999999999999998.0`: `9999999999999998.0`, `1e15`: `1000000000000000.0`, `12345678901234567890.0`: `1.2345678901234567e+19`,
		`0.00012`: `0.00012`, `0.000099`: `9.9e-05`, `1.5e-7`: `1.5e-07`, `1e100`: `1e+100`, `1e-400`: `0.0`,
		`123456789012345678901234567890`: `123456789012345678901234567890`,
		`"\u007f\u0000\b\f\/<>&\u2028"`:  `"\u007f\u0000\b\f/<>&\u2028"`,
		`"\ud83d\udc33"`:                 `"\ud83d\udc33"`,
		`"\\u0041"`:                      `"\\u0041"`,
	} {
		if got, err := Text([]byte(in)); err != nil || string(got) != want {
			t.Errorf("%s gives %s, %v; want %s", in, got, err, want)
		}
	}
}

func TestRefusals(t *testing.T) {
	deep := strings.Repeat("[", MaxDepth+2) + strings.Repeat("]", MaxDepth+2)
	for _, bad := range []string{
		``, `{`, `{} {}`, `{"a":1,"a":1}`, `{"a":{"b":1,"b":2}}`, "\"\xff\"", `"\ud800"`, `"\udc00x"`, `"\ud800\u0041"`, `NaN`, `1e999`, `01`,
		deep, strings.Repeat("1", MaxDigits+1), `{1:2}`, `[1,]`,
	} {
		if got, err := Text([]byte(bad)); err == nil {
			t.Errorf("%.40s accepted as %s", bad, got)
		}
	}
	for _, bad := range []any{math.NaN(), math.Inf(1), json.Number("x"), json.Number(""), json.Number("007"), struct{}{}, "\xff"} {
		if got, err := Encode(bad); err == nil {
			t.Errorf("%v accepted as %s", bad, got)
		}
	}
	if _, err := ParseObject([]byte(`[]`)); err == nil {
		t.Error("an array passed as an object")
	}
}

func TestFloatsReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := rapid.Float64().Draw(t, "f")
		b, err := Encode(f)
		if math.IsNaN(f) || math.IsInf(f, 0) {
			if err == nil {
				t.Fatal("not finite, accepted")
			}
			return
		}
		again, err := Text(b)
		if err != nil || string(again) != string(b) {
			t.Fatalf("%v gives %s, then %s, %v", f, b, again, err)
		}
	})
}

func FuzzText(f *testing.F) {
	for _, s := range []string{`{"a":1.0,"\u00e9":[null,true,-0]}`, `"\ud83d\udc33"`, `1e-5`, `{"a":1,"a":2}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		b, err := Text(raw)
		if err != nil {
			return
		}
		if !json.Valid(b) {
			t.Fatalf("%q gives %q, which is no JSON", raw, b)
		}
		if again, err := Text(b); err != nil || string(again) != string(b) {
			t.Fatalf("%q gives %q, then %q, %v", raw, b, again, err)
		}
	})
}
