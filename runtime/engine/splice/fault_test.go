package splice

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestExplain(t *testing.T) {
	deep := strings.Repeat("[", MaxDepth+1) + strings.Repeat("]", MaxDepth+1)
	for _, c := range []struct {
		name, in string
		kind, at int
		says     string
	}{
		{"nothing", "", FaultEmpty, 0, ""},
		{"white space", " \r\n\t", FaultEmpty, 0, ""},
		{"byte order mark", "\xef\xbb\xbf{}", FaultSyntax, 0, "byte order mark"},
		{"UTF-16 with a mark", "\xff\xfe{\x00}\x00", FaultSyntax, 0, "UTF-16"},
		{"UTF-16", "{\x00}\x00", FaultSyntax, 0, "UTF-16"},
		{"gzip", "\x1f\x8b\x08\x00", FaultSyntax, 0, "gzip"},
		{"NaN", `{"t":NaN}`, FaultSyntax, 5, "NaN"},
		{"infinity", `{"t":Infinity}`, FaultSyntax, 5, "Infinity"},
		{"negative infinity", `{"t":-Infinity}`, FaultSyntax, 5, "-Infinity"},
		{"two values", `{"a":1} {}`, FaultSyntax, 8, "follows"},
		{"cut", `{"a":"b`, FaultSyntax, 7, "ends"},
		{"no quotes", `{a:1}`, FaultSyntax, 1, "0x61"},
		{"deep", `{"a":` + deep + `}`, FaultDeep, 5 + MaxDepth - 1, ""},
		{"brackets in a string are not deep", `{"a":"` + deep + `",}`, FaultSyntax, 6 + len(deep) + 2, "0x7d"},
		{"an error before the depth", `{"a":x,"b":` + deep + `}`, FaultSyntax, 5, "0x78"},
		{"no UTF-8 in a value", "{\"a\":\"b\xff\"}", FaultUTF8, 7, ""},
		{"no UTF-8 in a name", "{\"\xfea\":1}", FaultUTF8, 2, ""},
		{"UTF-8 of a surrogate", "{\"a\":\"\xed\xa0\x80\"}", FaultUTF8, 6, ""},
		{"half a character", "{\"a\":\"\xe2\x82\"}", FaultUTF8, 6, ""},
		{"an error before what is no UTF-8", "{a:\"\xff\"}", FaultSyntax, 1, ""},
	} {
		f := Explain([]byte(c.in))
		if f.Kind != c.kind || f.At != c.at || !strings.Contains(f.Says, c.says) {
			t.Errorf("%s: %+v", c.name, f)
		}
	}
}

// Whatever is refused has a place within the bytes or just behind them.
func FuzzExplain(f *testing.F) {
	for _, s := range grammar {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if (NotUTF8(b) < 0) != utf8.Valid(b) {
			t.Errorf("NotUTF8(%q) = %d", b, NotUTF8(b))
		}
		if utf8.Valid(b) && json.Valid(b) {
			return
		}
		v := Explain(b)
		if v.At < 0 || v.At > len(b) || v.Kind == FaultUTF8 && v.At == len(b) || v.Kind == FaultSyntax && v.Says == "" {
			t.Errorf("Explain(%q) = %+v", b, v)
		}
	})
}

func BenchmarkNotUTF8(b *testing.B) {
	for name, unit := range map[string]string{"english": "whale ", "chinese": "鲸鱼"} {
		s := []byte(`{"prompt":"` + strings.Repeat(unit, 1<<20/6) + `"}`)
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(s)))
			for b.Loop() {
				NotUTF8(s)
			}
		})
	}
}
