package bench

import (
	"bufio"
	"bytes"
	"fmt"
	"io"

	"github.com/narwhal-fleet/narwhal/runtime/journal"
)

// isJournal tells a router's journal by the head of its first line.
func isJournal(in *bufio.Reader) bool {
	head, _ := in.Peek(256)
	line, _, _ := bytes.Cut(head, []byte("\n"))
	return bytes.HasPrefix(line, []byte("{")) && bytes.Contains(line, []byte(`"`+journal.Schema+`"`))
}

// traceOfJournal makes arrivals of the requests of a journal that were sized. How long the answer
// to one that was not completed would have been is not known: it counts as long as the client
// allowed, or without a limit as the mean of the completed ones.
func traceOfJournal(in io.Reader, class string) (Trace, error) {
	p := &parser{class: class, wall: true}
	var open []int // arrivals of unknown length
	sum, n := 0, 0
	st, err := journal.Read(in, func(l journal.Line) error {
		r := l.Row
		if r == nil || !r.InputSized {
			return nil
		}
		a := arrival{at: r.AtUnix, a: Arrival{Input: r.InputLen, Output: r.WantedLen, Class: class}}
		switch done := r.Terminal == journal.Completed && r.OutputLen != nil; {
		case done:
			a.a.Output = *r.OutputLen
			sum, n = sum+a.a.Output, n+1
		case r.WantedLen <= 0:
			open = append(open, len(p.out))
		}
		if err := p.take(a); err != nil {
			return fmt.Errorf("row %s: %w", r.RID, err)
		}
		if len(p.out) > maxArrivals {
			return fmt.Errorf("more than %d arrivals", maxArrivals)
		}
		return nil
	})
	if err != nil {
		return Trace{}, fmt.Errorf("read trace: %w", err)
	}
	if st.Bad > 0 {
		return Trace{}, fmt.Errorf("read trace: %d lines of the journal cannot be read", st.Bad)
	}
	for _, i := range open {
		p.out[i].a.Output = sum / max(1, n)
	}
	return p.trace()
}
