package fabric

import "time"

// arrival is an event of a stream: tokens came, or a request began (fresh) or ended (over).
type arrival struct {
	at     time.Time
	tokens int
	fresh  bool
	over   bool
}

// interval is the seconds that streams waited for one token within a window, and the longest
// of these waits. Waits that reach over an end of the window count for their part inside, so
// that a stream which stands still for the whole window is seen. The time between two requests
// is no wait for a token, nor is a prompt's.
func interval(streams [][]arrival, from, until time.Time) (perToken, longest float64) {
	var waited float64
	tokens := 0
	for _, s := range streams {
		var last time.Time
		for _, a := range s {
			if a.fresh {
				last = time.Time{}
			}
			if !last.IsZero() {
				begin, end := last, a.at
				if begin.Before(from) {
					begin = from
				}
				if end.After(until) {
					end = until
				}
				if w := end.Sub(begin).Seconds(); w > 0 {
					waited += w
					longest = max(longest, w)
				}
				if a.at.After(from) && !a.at.After(until) {
					tokens += a.tokens
				}
			}
			switch {
			case a.over:
				last = time.Time{}
			case a.tokens > 0:
				last = a.at
			}
		}
	}
	return waited / float64(max(1, tokens)), longest
}
