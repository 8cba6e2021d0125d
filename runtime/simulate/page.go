package simulate

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"html/template"
)

//go:embed page.html.tmpl
var pageSource string

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
	"percent": func(v float64) string { return fmt.Sprintf("%.2f %%", 100*v) },
	"ms": func(v *float64) string {
		if v == nil {
			return "–"
		}
		return fmt.Sprintf("%.0f ms", *v)
	},
	"name": short,
}).Parse(pageSource))

// Page returns the result as one HTML page with the timelines of its arms: no script, nothing
// from elsewhere, text of the outside escaped, the same bytes for the same result.
func Page(r Result, ttft float64) ([]byte, error) {
	type arm struct {
		Arm
		Pictures []template.HTML
	}
	var names []string
	var shares []float64
	data := struct {
		Result
		Bars template.HTML
		Each []arm
	}{Result: r}
	for i := range r.Arms {
		a := &r.Arms[i]
		if a.Timeline == nil {
			return nil, errors.New("write page: the simulation kept no timeline")
		}
		names, shares = append(names, a.Policy+" · "+a.Topology), append(shares, a.Attainment)
		x := arm{Arm: *a}
		for _, p := range pictures(a, ttft) {
			x.Pictures = append(x.Pictures, template.HTML(p)) // escaped by picture
		}
		data.Each = append(data.Each, x)
	}
	data.Bars = template.HTML(bars(names, shares, r.BestStatic.Attainment, r.Hindsight.Attainment))
	var b bytes.Buffer
	if err := pageTemplate.Execute(&b, data); err != nil {
		return nil, fmt.Errorf("write page: %w", err)
	}
	return b.Bytes(), nil
}

// Bars is the picture of all arms beside the bounds.
func Bars(r Result) []byte {
	var names []string
	var shares []float64
	for _, a := range r.Arms {
		names, shares = append(names, a.Policy+" · "+a.Topology), append(shares, a.Attainment)
	}
	return []byte(bars(names, shares, r.BestStatic.Attainment, r.Hindsight.Attainment) + "\n")
}

// Lines are an arm's pictures over time: roles, requests, first tokens. The simulation must
// have kept its timeline.
func Lines(a Arm, ttft float64) [][]byte {
	var out [][]byte
	for _, p := range pictures(&a, ttft) {
		out = append(out, []byte(p+"\n"))
	}
	return out
}
