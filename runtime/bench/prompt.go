package bench

import (
	"fmt"
	"strings"
)

// words are ordinary lower-case text for a tokenizer to bite on.
var words = strings.Fields("the grey whale turned under the ice and came up far from where the boats had been waiting since morning with their nets still dry")

// prompt is about tokens long and unlike every other prompt of its salt from its first
// characters on, so that no cache answers for the engine; but for the prefix of a family.
func (r *run) prompt(index int, a Arrival) string {
	want := int(float64(a.Input) * r.plan.CharsPerToken)
	var b strings.Builder
	if a.Family > 0 && a.Prefix > 0 {
		fmt.Fprintf(&b, "%s family %d ", r.plan.Salt, a.Family)
		fill(&b, a.Family, min(want, int(float64(a.Prefix)*r.plan.CharsPerToken)))
	}
	fmt.Fprintf(&b, "%s %d ", r.plan.Salt, index)
	fill(&b, index, want)
	s := b.String()
	if want > 8 && len(s) > want {
		s = s[:want]
	}
	return s
}

func fill(b *strings.Builder, from, until int) {
	for i := from; b.Len() < until; i++ {
		b.WriteString(words[(i*7+from)%len(words)])
		b.WriteByte(' ')
	}
}
