package prefix

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func long(n int, from byte) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = from + byte(i%89)
	}
	return b
}

func TestChainsAgreeAsFarAsPromptsDo(t *testing.T) {
	h := NewHasher()
	rapid.Check(t, func(t *rapid.T) {
		a := long(rapid.IntRange(0, 6*Chunk).Draw(t, "length"), 'a')
		b := append(bytes.Clone(a), long(rapid.IntRange(0, 3*Chunk).Draw(t, "more"), 'b')...)
		at := -1
		if len(b) > 0 && rapid.Bool().Draw(t, "changed") {
			at = rapid.IntRange(0, len(b)-1).Draw(t, "at")
			b[at] ^= 1
		}
		ca, cb := h.Chain(a, []byte("m")), h.Chain(b, []byte("m"))
		if len(ca) != len(a)/Chunk || len(cb) != len(b)/Chunk {
			t.Fatalf("%d and %d chunks of %d and %d bytes", len(ca), len(cb), len(a), len(b))
		}
		want := len(ca)
		if at >= 0 {
			want = min(want, at/Chunk)
		}
		for i := range ca {
			if (ca[i] == cb[i]) != (i < want) {
				t.Fatalf("chunk %d of %d, changed at %d", i, len(ca), at)
			}
		}
	})
}

func TestWhatKeepsCachesApart(t *testing.T) {
	h := NewHasher()
	p := long(2*Chunk, 'x')
	parts := [][][]byte{{}, {nil}, {nil, nil}, {[]byte("a"), nil}, {nil, []byte("a")}, {[]byte("a"), []byte("b")}, {[]byte("b"), []byte("a")}, {[]byte("ab"), nil}}
	for i, a := range parts {
		for j, b := range parts {
			if same := slices.Equal(h.Chain(p, a...), h.Chain(p, b...)); same != (i == j) {
				t.Errorf("%q and %q: same %v", a, b, same)
			}
		}
	}
	if slices.Equal(NewHasher().Chain(p), h.Chain(p)) {
		t.Error("two hashers agree")
	}
	if n := len(h.Chain(long((MaxChunks+3)*Chunk, 'x'))); n != MaxChunks {
		t.Errorf("%d chunks", n)
	}
	twice := h.Chain(bytes.Repeat(long(Chunk, 'x'), 3))
	if twice[0] == twice[1] || twice[1] == twice[2] {
		t.Error("equal chunks have equal hashes wherever they are")
	}
}

// plain is an index as a plain list, newest first.
type plain struct {
	list  []uint64
	limit int
}

func (m *plain) drop(h uint64) {
	m.list = slices.DeleteFunc(m.list, func(x uint64) bool { return x == h })
}

func (m *plain) add(c Chain) {
	c = c[:min(len(c), m.limit)]
	for i := len(c) - 1; i >= 0; i-- {
		m.drop(c[i])
		m.list = slices.Insert(m.list, 0, c[i])
		m.list = m.list[:min(len(m.list), m.limit)]
	}
}

func (m *plain) match(c Chain) int {
	for i, h := range c {
		if !slices.Contains(m.list, h) {
			return i
		}
	}
	return len(c)
}

func TestIndexIsALeastRecentlyUsedList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := plain{limit: rapid.IntRange(0, 12).Draw(t, "limit")}
		var x Index
		x.SetLimit(m.limit)
		var salts [3]Chain // chains of three salts, whose heads agree within one
		for i := range salts {
			for k := range 16 {
				salts[i] = append(salts[i], uint64(100*i+k))
			}
		}
		draw := func() Chain {
			c := salts[rapid.IntRange(0, 2).Draw(t, "salt")][:rapid.IntRange(0, 10).Draw(t, "common")]
			if rapid.Bool().Draw(t, "branch") {
				c = append(slices.Clone(c), uint64(1000+rapid.IntRange(0, 5).Draw(t, "own")))
			}
			return c
		}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			c := draw()
			switch rapid.IntRange(0, 5).Draw(t, "what") {
			case 0:
				from := rapid.IntRange(-1, 11).Draw(t, "from")
				for i := max(0, from); i < len(c); i++ {
					m.drop(c[i])
				}
				if x.Trim(c, from); x.Match(c) > max(0, from) {
					t.Fatalf("%d of a chain that ends at %d", x.Match(c), from)
				}
			case 1:
				m.limit = m.limit * 3 / 4
				m.list = m.list[:min(len(m.list), m.limit)]
				x.Shrink()
			default:
				m.add(c)
				if x.Add(c); x.Match(c) != min(len(c), m.limit) {
					t.Fatalf("%d chunks of a chain of %d that was added, limit %d", x.Match(c), len(c), m.limit)
				}
			}
			if x.Len() != len(m.list) || x.Len() > m.limit || len(x.slots) > m.limit+20 {
				t.Fatalf("%d chunks in %d slots, want %d", x.Len(), len(x.slots), len(m.list))
			}
			if probe := draw(); x.Match(probe) != m.match(probe) {
				t.Fatalf("match %d, want %d", x.Match(probe), m.match(probe))
			}
		}
	})
}

func TestIndexForgets(t *testing.T) {
	var x Index
	x.Add(Chain{1, 2})
	if x.Len() != 0 {
		t.Error("an index without a limit holds something")
	}
	x.SetLimit(8)
	x.Add(Chain{1, 2, 3})
	x.Shrink()
	x.Clear()
	if x.Len() != 0 || x.Match(Chain{1}) != 0 || x.Limit() != 8 {
		t.Errorf("after Clear: %d of %d", x.Len(), x.Limit())
	}
	for range 40 {
		x.Shrink()
	}
	if x.Add(Chain{1}); x.Limit() != 1 && x.Limit() != 0 {
		t.Errorf("limit %d", x.Limit())
	}
	for range 10 {
		x.Grow()
	}
	if x.Limit() != 8 {
		t.Errorf("limit %d after growing", x.Limit())
	}
	if x.SetLimit(1 << 30); x.Limit() != MaxLimit {
		t.Errorf("limit %d", x.Limit())
	}
}

// BenchmarkChain hashes one mebibyte.
func BenchmarkChain(b *testing.B) {
	h, p := NewHasher(), long(1<<20, ' ')
	b.SetBytes(1 << 20)
	b.ReportAllocs()
	for b.Loop() {
		h.Chain(p, []byte("m"))
	}
}

// BenchmarkMatch asks 64 engines for a prompt of 64 KiB that none, one or all of them hold.
func BenchmarkMatch(b *testing.B) {
	h := NewHasher()
	c := h.Chain(long(64<<10, ' '))
	for _, holders := range []int{0, 1, 64} {
		engines := make([]Index, 64)
		for i := range engines {
			engines[i].SetLimit(1 << 14)
			engines[i].Add(h.Chain(long(1<<19, byte(i)), []byte{byte(i)}))
			if i < holders {
				engines[i].Add(c)
			}
		}
		b.Run(fmt.Sprintf("holders=%d", holders), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				for i := range engines {
					engines[i].Match(c)
				}
			}
		})
	}
}

// Trust follows what engines show, by hand.
func TestTrust(t *testing.T) {
	var x Index
	x.SetLimit(8)
	for _, c := range []struct {
		believed, held int
		want           float64
	}{{0, 0, 1}, {100, 0, 0.875}, {100, 50, 0.828125}, {100, 200, 0.849609375}, {0, 500, 0.849609375}} {
		if x.Judge(c.believed, c.held); x.Trust() != c.want {
			t.Errorf("after %d of %d: %v, want %v", c.held, c.believed, x.Trust(), c.want)
		}
	}
	for range 200 {
		x.Judge(10, 0)
	}
	if x.Trust() < 0 || x.Trust() > 1e-6 {
		t.Errorf("trust %v of an engine that never has anything", x.Trust())
	}
	if x.Clear(); x.Trust() != 1 {
		t.Error("a new process is not trusted")
	}
}
