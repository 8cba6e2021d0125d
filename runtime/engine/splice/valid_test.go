package splice

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"
)

var grammar = []string{`{}`, `[]`, ` [ 1 , -0.5e+3 , {"a":[true,false,null]} ] `, `"\u00e9\ud83d\ude00 \n"`, `{"a":1,"a":2}`, `0`, `-`, `01`, `1.`, `.5`, `1e`, `"a`, "\"\x01\"", `"\x"`, `"\u12g4"`,
	`{"a"}`, `{"a":}`, `{,}`, `[1,]`, `[1 2]`, `{"a":1,}`, `{1:2}`, `nul`, `truefalse`, `[}`, `{]`, ``, ` `, `1 1`, `"\`, `"\u12`, `{"a":[}]`, "\"\xff\xfe\"", strings.Repeat("[", 200) + strings.Repeat("]", 200), `[{"k":[{"k":[]}]},{}]`,
	strings.Repeat(`{"k":`, 130) + "1" + strings.Repeat("}", 130)}

func TestValidAgreesWithEncodingJSON(t *testing.T) {
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	for _, s := range append(grammar, deep(10000), deep(10001), strings.Repeat("[", 1<<20)) {
		if got, want := Valid([]byte(s)), json.Valid([]byte(s)); got != want {
			t.Errorf("Valid(%.60q) = %v, want %v", s, got, want)
		}
	}
}

func FuzzValid(f *testing.F) {
	for _, s := range grammar {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if got, want := Valid(b), json.Valid(b); got != want {
			t.Errorf("Valid(%q) = %v, want %v", b, got, want)
		}
	})
}

// FuzzRunes compares with a decoded string, whose lone surrogates count one character each.
func FuzzRunes(f *testing.F) {
	for _, s := range grammar {
		f.Add([]byte(s))
	}
	f.Add([]byte(`"\ud83d\ud83d\ude00\ude00\\ud83d"`))
	f.Fuzz(func(t *testing.T, b []byte) {
		b = bytes.TrimSpace(b)
		var s string
		if len(b) == 0 || b[0] != '"' || json.Unmarshal(b, &s) != nil {
			return
		}
		want := 0
		for range s {
			want++
		}
		if got := Runes(b); got != want {
			t.Errorf("Runes(%q) = %d, want %d of %q (%d units)", b, got, want, s, len(utf16.Encode([]rune(s))))
		}
	})
}

func TestViewsOfValidBytes(t *testing.T) {
	o := View([]byte(` {"a":[1,{"b":2}],"c":"x"} `))
	if v, ok := o.Get("a"); !ok || string(v) != `[1,{"b":2}]` {
		t.Errorf("a = %s", v)
	}
	if keys := View([]byte(`[1]`)).Keys(); len(keys) != 0 {
		t.Errorf("an array has members %v", keys)
	}
	es, ok := Elements([]byte(`[ {"a":1} , "x,]" ,3]`), 9)
	if !ok || len(es) != 3 || string(es[1]) != `"x,]"` {
		t.Errorf("elements %q", es)
	}
	if es, _ := Elements([]byte(`[1,2,3]`), 2); len(es) != 2 {
		t.Errorf("no bound: %q", es)
	}
	if _, ok := Elements([]byte(`{}`), 2); ok {
		t.Error("an object has elements")
	}
	for s, want := range map[string][2]int{`[]`: {0, 0}, `[1, 2,30]`: {3, 3}, `[1,-2,3.0,"4",[5]]`: {5, 1}} {
		if n, ints, ok := Count([]byte(s)); !ok || n != want[0] || ints != want[1] {
			t.Errorf("Count(%s) = %d, %d", s, n, ints)
		}
	}
}

func TestWith(t *testing.T) {
	o, _ := Parse([]byte(`{"a":1e0,"b":[2],"a":3}`))
	w := o.With(Set{"a", json.RawMessage("7")}, Set{"c", json.RawMessage(`"x"`)})
	if got := string(w.Edit(nil)); got != `{"b":[2],"a":7,"c":"x"}` {
		t.Errorf("got %s", got)
	}
	if got := string(o.Edit(nil)); got != `{"a":1e0,"b":[2],"a":3}` {
		t.Errorf("the original is now %s", got)
	}
}

func BenchmarkValid(b *testing.B) {
	s := []byte(`{"prompt":"` + strings.Repeat("whale ", 1<<20/6) + `"}`)
	for name, valid := range map[string]func([]byte) bool{"ours": Valid, "encoding-json": json.Valid} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(s)))
			for b.Loop() {
				valid(s)
			}
		})
	}
}

// The typed readers agree with encoding/json where that is strict.
func TestReadersAgreeWithEncodingJSON(t *testing.T) {
	for _, in := range []string{`0`, `-0`, `7`, `-12`, `1.0`, `1e2`, `9223372036854775807`, `9223372036854775808`, `"7"`, `null`, `true`, `false`, `[]`, `[1]`, `[1, 2 ,3]`, `[1,"x"]`, `[1.5]`, `[[]]`, `[[1],[2, 3]]`, `[ [1] , 2]`, `[[1],null]`, `{}`, ` [1]`} {
		var n int
		err := json.Unmarshal([]byte(in), &n)
		if got, ok := Int([]byte(in)); ok != (err == nil && in != "null") || ok && got != n {
			t.Errorf("Int(%s) = %d, %v", in, got, ok)
		}
		var v bool
		err = json.Unmarshal([]byte(in), &v)
		if got, ok := Bool([]byte(in)); ok != (err == nil && in != "null") || ok && got != v {
			t.Errorf("Bool(%s) = %v, %v", in, got, ok)
		}
		var row []int
		err = json.Unmarshal([]byte(in), &row)
		if got, ok := Ints([]byte(in)); ok != (err == nil && in != "null") || ok && !slices.Equal(got, row) {
			t.Errorf("Ints(%s) = %v, %v", in, got, ok)
		}
		var rows [][]int
		err = json.Unmarshal([]byte(in), &rows)
		if got, ok := Rows([]byte(in)); ok != (err == nil && !strings.Contains(in, "null")) || ok && !slices.EqualFunc(got, rows, slices.Equal[[]int]) {
			t.Errorf("Rows(%s) = %v, %v", in, got, ok)
		}
	}
	if v, ok := Elements([]byte(`[1,2,3]`), 2); !ok || len(v) != 2 {
		t.Errorf("Elements stopped at %d, %v", len(v), ok)
	}
}
