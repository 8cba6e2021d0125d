package splice

import (
	"encoding/json"
	"testing"

	"pgregory.net/rapid"
)

func TestEditKeepsForeignBytes(t *testing.T) {
	cases := []struct{ name, in, want string }{
		{"number kept", `{"seed":12345678901234567890, "max_tokens":7,"t":1.10}`, `{"seed":12345678901234567890,"t":1.10,"max_tokens":1}`},
		{"escaped key", `{"max\u005ftokens":7,"a":"x\"}"}`, `{"a":"x\"}","max_tokens":1}`},
		{"repeated key", `{"max_tokens":7,"a":[{"max_tokens":9}],"max_tokens":8}`, `{"a":[{"max_tokens":9}],"max_tokens":1}`},
		{"empty", ` { } `, `{"max_tokens":1}`},
		{"dropped", `{"gone":{"a":["]"]},"a":null}`, `{"a":null,"max_tokens":1}`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			o, err := Parse([]byte(c.in))
			if err != nil {
				t.Fatal(err)
			}
			got := o.Edit(func(k string) bool { return k == "gone" }, Set{"max_tokens", json.RawMessage("1")})
			if string(got) != c.want {
				t.Fatalf("got %s want %s", got, c.want)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	for _, in := range []string{"", " ", "[1]", "3", `"{}"`, `{"a":1`, `{"a":1}x`, `{a:1}`} {
		if _, err := Parse([]byte(in)); err == nil {
			t.Errorf("%q accepted", in)
		}
	}
}

func TestGetTakesTheLast(t *testing.T) {
	o, err := Parse([]byte(`{"a":1,"b":2,"a":3}`))
	if err != nil {
		t.Fatal(err)
	}
	if v, ok := o.Get("a"); !ok || string(v) != "3" {
		t.Fatalf("got %s %v", v, ok)
	}
}

func TestEditEqualsDecodedEdit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := rapid.MapOf(rapid.String(), rapid.OneOf(
			rapid.Just[any](nil), rapid.Map(rapid.String(), func(s string) any { return s }),
			rapid.Map(rapid.Int32(), func(i int32) any { return float64(i) }),
			rapid.Map(rapid.SliceOf(rapid.String()), func(s []string) any { return s }),
		)).Draw(t, "object")
		src, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		o, err := Parse(src)
		if err != nil {
			t.Fatal(err)
		}
		out := o.Edit(func(k string) bool { return len(k) == 1 }, Set{"new", json.RawMessage("true")})
		want := map[string]any{"new": true}
		for k, v := range in {
			if len(k) != 1 && k != "new" {
				want[k] = v
			}
		}
		var got map[string]any
		if err := json.Unmarshal(out, &got); err != nil {
			t.Fatalf("%s: %v", out, err)
		}
		a, _ := json.Marshal(got)
		b, _ := json.Marshal(want)
		if string(a) != string(b) {
			t.Fatalf("got %s want %s", a, b)
		}
	})
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{`{}`, `{"a":[1,{"b":"}"}],"c":-1.5e3}`, `[]`, `{"a\"":"\\"}`, ` {"a" : true , "b":null} `} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		o, err := Parse(src)
		if err != nil {
			return
		}
		if out := o.Edit(nil); !json.Valid(out) {
			t.Fatalf("edit of %q gave %q", src, out)
		}
	})
}
