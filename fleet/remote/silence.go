package remote

import "time"

// silence counts the intervals in which a server that was asked sent nothing.
type silence struct {
	interval time.Duration
	seen     int64 // bytes that had come in
	last     time.Time
	missed   int
}

// tick ends an interval in which a question was open or not, and returns how many were silent
// since the last sign. One that this process overslept itself says nothing of the server.
func (s *silence) tick(now time.Time, in int64, asked bool) int {
	overslept := now.Sub(s.last) > s.interval+s.interval/2
	s.last = now
	switch {
	case in != s.seen:
		s.seen, s.missed = in, 0
	case asked && !overslept:
		s.missed++
	}
	return s.missed
}
