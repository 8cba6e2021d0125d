package splice

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"
)

// MaxDepth is how deep values may be nested.
const MaxDepth = maxDepth

// Kinds of faults.
const (
	FaultSyntax = iota // anything that has no kind of its own
	FaultEmpty         // nothing but white space
	FaultDeep          // nested deeper than MaxDepth
	FaultUTF8          // bytes that are no UTF-8
)

// Fault is why bytes are no JSON that a client may send.
type Fault struct {
	Kind int
	At   int    // offset of the first byte at fault, from 0
	Says string // what is there, of FaultSyntax
}

// NotUTF8 returns the offset of the first byte that is no UTF-8, -1 for none.
func NotUTF8(src []byte) int {
	if utf8.Valid(src) {
		return -1
	}
	for i := 0; ; {
		r, n := utf8.DecodeRune(src[i:])
		if r == utf8.RuneError && n <= 1 {
			return i
		}
		i += n
	}
}

// openings are encodings that show in the first bytes.
var openings = []struct{ bytes, says string }{
	{"\xef\xbb\xbf", "it begins with a byte order mark; send UTF-8 without one"},
	{"\xff\xfe", "it begins with the byte order mark of UTF-16; send UTF-8"},
	{"\xfe\xff", "it begins with the byte order mark of UTF-16; send UTF-8"},
	{"\x00\x00", "it seems to be UTF-32; send UTF-8"},
	{"\x00{", "it seems to be UTF-16; send UTF-8"},
	{"{\x00", "it seems to be UTF-16; send UTF-8"},
	{"\x1f\x8b", "it seems to be compressed with gzip; send it as it is"},
	{"\x28\xb5\x2f\xfd", "it seems to be compressed with zstd; send it as it is"},
}

// foreignNumbers are words that other writers of JSON use for numbers.
var foreignNumbers = []string{"NaN", "-Infinity", "Infinity"}

// Explain says what is wrong with bytes that Parse refuses, or that are no UTF-8.
func Explain(src []byte) Fault {
	start := space(src, 0)
	if start == len(src) {
		return Fault{Kind: FaultEmpty}
	}
	for _, o := range openings {
		if bytes.HasPrefix(src, []byte(o.bytes)) {
			return Fault{Says: o.says}
		}
	}
	at, says := syntax(src)
	if bad := NotUTF8(src); bad >= 0 && (at < 0 || bad <= at) {
		return Fault{Kind: FaultUTF8, At: bad}
	}
	if deep := deeper(src); deep >= 0 && deep <= at+1 {
		return Fault{Kind: FaultDeep, At: deep}
	}
	return Fault{At: max(0, at), Says: says}
}

// syntax returns the first offset that the grammar refuses, -1 for none, and what is there.
func syntax(src []byte) (at int, says string) {
	if end := value(src, space(src, 0)); end >= 0 {
		if end = space(src, end); end == len(src) {
			return -1, ""
		}
		return end, "something follows the JSON value"
	}
	var wrong *json.SyntaxError
	var v json.RawMessage
	if !errors.As(json.Unmarshal(src, &v), &wrong) {
		return 0, "it is no JSON"
	}
	at = int(wrong.Offset) - 1
	if at < 0 || at >= len(src) || bytes.HasPrefix([]byte(wrong.Error()), []byte("unexpected end")) {
		return len(src), "it ends within a value"
	}
	for _, w := range foreignNumbers {
		for _, from := range []int{at, at - 1} {
			if from >= 0 && bytes.HasPrefix(src[from:], []byte(w)) {
				return from, w + " is no JSON number"
			}
		}
	}
	return at, fmt.Sprintf("byte 0x%02x does not belong there", src[at])
}

// deeper returns the offset of the first bracket beyond MaxDepth, -1 for none. The bytes before
// it need not be valid beyond their strings.
func deeper(src []byte) int {
	depth := 0
	for i := 0; i < len(src); i++ {
		switch src[i] {
		case '"':
			if i = str(src, i); i < 0 {
				return -1
			}
			i--
		case '{', '[':
			if depth++; depth > maxDepth {
				return i
			}
		case '}', ']':
			depth--
		}
	}
	return -1
}
