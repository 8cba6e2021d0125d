package schema

import "strings"

// nearest returns the name closest to what was written, or "" when none is close:
// at most a third of the letters may differ, and at least one.
func nearest(written string, names []string) string {
	if len(written) > 64 {
		return ""
	}
	best, least := "", max(1, len(written)/3)+1
	for _, name := range names {
		if d := distance(strings.ToLower(written), strings.ToLower(name)); d < least {
			best, least = name, d
		}
	}
	if best != "" {
		return best
	}
	for _, name := range names { // a part of the name, such as timeout_s for request_timeout_s
		if len(written) >= 4 && strings.Contains(name, strings.ToLower(written)) {
			return name
		}
	}
	return ""
}

// distance is the number of letters to insert, drop, replace or swap with a neighbour.
func distance(a, b string) int {
	var before []int
	last := make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(row[j-1]+1, last[j]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}
