package simulate

import (
	"fmt"
	"html"
	"math"
	"strings"
	"unicode"
)

// Size of a picture's plane, and the space beside it for words.
const (
	planeWide, planeHigh = 720, 110
	marginLeft           = 48
	marginTop            = 8
	marginBottom         = 20
)

// colours tell lines apart, light enough to differ and dark enough on white.
var colours = []string{"#1f4e79", "#b5541c", "#3a7d44", "#7a3b8f", "#8a6d00", "#00707a", "#a02040", "#555555"}

// curve is one line of a picture; NaN leaves a gap.
type curve struct {
	name   string
	values []float64
	steps  bool // the value holds until the next point
}

// picture draws lines over time as one SVG element. The text of the outside is escaped, and
// the same lines give the same bytes.
func picture(title, unit string, seconds, limit float64, lines []curve) string {
	most := limit
	for _, l := range lines {
		for _, v := range l.values {
			if !math.IsNaN(v) {
				most = math.Max(most, v)
			}
		}
	}
	if most <= 0 {
		most = 1
	}
	var b strings.Builder
	wide, high := marginLeft+planeWide+8, marginTop+planeHigh+marginBottom+16
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-label="%s" font-family="sans-serif" font-size="11">`,
		wide, high, wide, high, html.EscapeString(title))
	fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%d" height="%d" fill="none" stroke="#bbb"/>`, marginLeft, marginTop, planeWide, planeHigh)
	y := func(v float64) float64 { return marginTop + planeHigh*(1-v/most) }
	fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end">%s</text><text x="%d" y="%d" text-anchor="end">0</text>`,
		marginLeft-4, marginTop+9, number(most), marginLeft-4, marginTop+planeHigh)
	fmt.Fprintf(&b, `<text x="%d" y="%d">%s</text><text x="%d" y="%d" text-anchor="end">%s s</text>`,
		marginLeft, marginTop+planeHigh+13, html.EscapeString(title+", "+unit), marginLeft+planeWide, marginTop+planeHigh+13, number(seconds))
	if limit > 0 {
		fmt.Fprintf(&b, `<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="#999" stroke-dasharray="4 3"/>`, marginLeft, marginLeft+planeWide, y(limit), y(limit))
	}
	x := float64(marginLeft)
	for i, l := range lines {
		c := colours[i%len(colours)]
		if d := path(l, y); d != "" {
			fmt.Fprintf(&b, `<path d="%s" fill="none" stroke="%s" stroke-width="1.5"/>`, d, c)
		}
		fmt.Fprintf(&b, `<text x="%.0f" y="%d" fill="%s">%s</text>`, x, marginTop+planeHigh+28, c, html.EscapeString(short(l.name)))
		x += 7*float64(len([]rune(short(l.name)))) + 14
	}
	b.WriteString("</svg>")
	return b.String()
}

func path(l curve, y func(float64) float64) string {
	var b strings.Builder
	gap, last := true, 0.0
	for i, v := range l.values {
		x := marginLeft + planeWide*float64(i)/float64(max(1, len(l.values)-1))
		switch {
		case math.IsNaN(v):
			gap = true
			continue
		case gap:
			fmt.Fprintf(&b, "M%.1f %.1f", x, y(v))
			if i+1 == len(l.values) || math.IsNaN(l.values[i+1]) {
				b.WriteString("h1")
			}
		case l.steps:
			if v != last {
				fmt.Fprintf(&b, "H%.1fV%.1f", x, y(v))
			} else if i+1 == len(l.values) {
				fmt.Fprintf(&b, "H%.1f", x)
			}
		default:
			fmt.Fprintf(&b, "L%.1f %.1f", x, y(v))
		}
		gap, last = false, v
	}
	return b.String()
}

// short keeps names from growing over a picture, and control and direction characters out of it.
func short(name string) string {
	name = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == '\u2028' || r == '\u2029' {
			return unicode.ReplacementChar
		}
		return r
	}, strings.ToValidUTF8(name, "\ufffd"))
	if r := []rune(name); len(r) > 24 {
		return string(r[:23]) + "…"
	}
	if name == "" {
		return "all"
	}
	return name
}

func number(v float64) string {
	if v >= 100 || v == math.Trunc(v) {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.2g", v)
}

// pictures are an arm's roles, its queue and its first tokens over time.
func pictures(a *Arm, ttft float64) []string {
	t := a.Timeline
	seconds := t.Step * points
	whole := func(name string, v [points]int, steps bool) curve {
		out := make([]float64, points)
		for i, n := range v {
			out[i] = float64(n)
		}
		return curve{name, out, steps}
	}
	out := []string{
		picture("engines by role", "live", seconds, 0, []curve{whole("prefill", t.Prefill, true), whole("decode", t.Decode, true)}),
		picture("requests", "most in a step", seconds, 0, []curve{whole("in flight", t.Inflight, false), whole("wait for prefill", t.Waiting, false)}),
	}
	var lines []curve
	for i, c := range a.Classes {
		if i == len(colours) {
			break // classes of their own colours suffice
		}
		v := make([]float64, points)
		for k, d := range t.First[i] {
			if v[k] = math.NaN(); d.N > 0 {
				v[k] = d.Sum / float64(d.N)
			}
		}
		lines = append(lines, curve{c.Class, v, false})
	}
	return append(out, picture("mean first token by arrival, the promise dashed", "s", seconds, ttft, lines))
}

// bars draws shares of 1 beside marks as one SVG element.
func bars(names []string, shares []float64, static, bound float64) string {
	const left, wide, row = 210, 460, 18
	var b strings.Builder
	high := row*len(names) + 26
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-label="attainment" font-family="sans-serif" font-size="11">`,
		left+wide+70, high, left+wide+70, high)
	for i, n := range names {
		fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end">%s</text><rect x="%d" y="%d" width="%.1f" height="12" fill="%s"/><text x="%.1f" y="%d">%.2f %%</text>`,
			left-6, row*i+13, html.EscapeString(n), left, row*i+3, wide*shares[i], colours[0], left+wide*shares[i]+4, row*i+13, 100*shares[i])
	}
	for _, m := range []struct {
		at     float64
		word   string
		colour string
		anchor string
	}{{static, "best static", colours[1], "end"}, {bound, "bound", colours[6], "start"}} {
		x := left + wide*m.at
		fmt.Fprintf(&b, `<line x1="%.1f" x2="%.1f" y1="0" y2="%d" stroke="%s" stroke-dasharray="3 2"/><text x="%.1f" y="%d" fill="%s" text-anchor="%s">%s</text>`,
			x, x, high-14, m.colour, x, high-3, m.colour, m.anchor, m.word)
	}
	b.WriteString("</svg>")
	return b.String()
}
