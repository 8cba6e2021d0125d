package standby

import (
	"context"
	"net"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// script answers connects in turn; the last answer repeats.
type script struct {
	answers []string
	asked   int
}

func (s *script) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	answer := s.answers[min(s.asked, len(s.answers)-1)]
	s.asked++
	near, far := net.Pipe()
	switch answer {
	case "refused":
		return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	case "reset":
		return nil, &net.OpError{Op: "dial", Err: syscall.ECONNRESET}
	case "unreachable":
		return nil, &net.OpError{Op: "dial", Err: syscall.EHOSTUNREACH}
	case "silent":
		<-ctx.Done()
		return nil, ctx.Err()
	case "ends":
		_ = far.Close()
	}
	return near, nil // "lasts"
}

func TestWitness(t *testing.T) {
	for _, c := range []struct {
		answers []string
		gone    bool
	}{
		{[]string{"refused"}, true},
		{[]string{"reset", "refused"}, true},
		{[]string{"ends", "ends", "reset", "refused"}, true},
		{[]string{"lasts"}, false},
		{[]string{"ends", "lasts"}, false},
		{[]string{"silent"}, false},
		{[]string{"unreachable"}, false},
		{[]string{"reset", "unreachable"}, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &script{answers: c.answers}
			w := newWitness(s.dial, "primary:1", 200*time.Millisecond)
			if got := w.refused(t.Context()); got != c.gone || s.asked != len(c.answers) {
				t.Errorf("%q: gone %v after %d connects", c.answers, got, s.asked)
			}
		})
	}
}

// TestWitnessStops with its context, also while everything it connects to ends at once.
func TestWitnessStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, answer := range []string{"ends", "lasts", "silent"} {
			ctx, cancel := context.WithCancel(t.Context())
			w := newWitness((&script{answers: []string{answer}}).dial, "primary:1", time.Hour)
			done := make(chan struct{})
			go func() { defer close(done); w.run(ctx) }()
			signal(w.ended)
			time.Sleep(time.Minute)
			cancel()
			<-done
		}
	})
}

// TestOwnEndIsNoSign: a connection that this side closes tells nothing.
func TestOwnEndIsNoSign(t *testing.T) {
	w := newWitness((&script{answers: []string{"lasts"}}).dial, "primary:1", time.Second)
	c, err := w.connect(t.Context(), "tcp", "primary:1")
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	_, _ = c.Read(make([]byte, 1))
	if len(w.ended) != 0 {
		t.Error("the own end was taken for the primary's")
	}
}
