package loglines

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// gate is a stream whose reader may be away.
type gate struct {
	open chan struct{}
	got  strings.Builder
}

func (g *gate) Write(b []byte) (int, error) {
	<-g.open
	return g.got.Write(b)
}

func tell(to io.Writer, n int) { fmt.Fprintf(to, "missing %d\n", n) }

// Without a reader writes return, what is beyond the bound is counted, and the reader who comes
// back learns of it at the place where it is missing.
func TestWritesDoNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gate{open: make(chan struct{})}
		q := New(g, tell)
		line := strings.Repeat("x", 1023) + "\n"
		_, _ = io.WriteString(q, "first\n")
		synctest.Wait() // it is being written
		for range Most/1024 + 7 {
			if n, err := io.WriteString(q, line); n != len(line) || err != nil {
				t.Fatal(n, err)
			}
		}
		if q.Dropped() != 7 {
			t.Errorf("%d lines are counted", q.Dropped())
		}
		close(g.open)
		synctest.Wait()
		_, _ = io.WriteString(q, "last\n")
		q.Close(time.Second)
		if want := "first\n" + strings.Repeat(line, Most/1024) + "missing 7\nlast\n"; g.got.String() != want {
			t.Errorf("the stream has %d bytes, which end in %q", g.got.Len(), g.got.String()[max(0, g.got.Len()-40):])
		}
	})
}

func TestCloseIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gate{open: make(chan struct{})}
		q := New(g, tell)
		for range 3 {
			_, _ = io.WriteString(q, "a\n")
		}
		at := time.Now()
		q.Close(time.Second)
		if took := time.Since(at); took != time.Second {
			t.Errorf("took %s", took)
		}
		_, _ = io.WriteString(q, "late\n")
		if q.Dropped() != 1 {
			t.Errorf("%d lines are counted", q.Dropped())
		}
		close(g.open)
	})
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("no reader") }

// A stream that fails loses its lines, and holds nobody.
func TestBrokenStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(broken{}, tell)
		for i := range 4 {
			_, _ = io.WriteString(q, "a\n")
			synctest.Wait()
			if q.Dropped() != i+1 {
				t.Errorf("%d lines are counted of %d", q.Dropped(), i+1)
			}
		}
		q.Close(time.Second)
	})
}

// Each line comes once and in order, or is counted as missing where it is.
func TestEveryLineIsToldOf(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		sizes := rapid.SliceOfN(rapid.IntRange(1, Most/3), 1, 12).Draw(rt, "sizes")
		g := &gate{open: make(chan struct{}, len(sizes)*3)}
		missing := 0
		q := New(g, func(_ io.Writer, n int) { missing += n })
		for i, n := range sizes {
			fmt.Fprintf(q, "%d%s\n", i, strings.Repeat(".", n))
			if rapid.Bool().Draw(rt, "moves") {
				g.open <- struct{}{}
			}
		}
		close(g.open)
		q.Close(time.Minute)
		last, got := -1, 0
		for l := range strings.Lines(g.got.String()) {
			var i int
			if _, err := fmt.Sscanf(l, "%d", &i); err != nil || i <= last {
				rt.Fatalf("line %d comes after %d", i, last)
			}
			last, got = i, got+1
		}
		if got+missing != len(sizes) || q.Dropped() != missing {
			rt.Fatalf("%d lines, %d came, %d are told of, %d counted", len(sizes), got, missing, q.Dropped())
		}
	})
}
