package bundle

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"time"

	"github.com/narwhal-fleet/narwhal/gates/record"
)

//go:embed report.tmpl
var reportText string

var reportPage = template.Must(template.New("report").Parse(reportText))

// gateNames are the gates in their order.
var gateNames = []struct{ Letter, Name string }{
	{"A", "Discover"}, {"B", "Install"}, {"C", "Engines"}, {"D", "Fabric"}, {"E", "Attest"}, {"F", "Preflight"}, {"G", "Serve"},
}

type page struct {
	*Manifest
	Model   string
	Read    bool // the record could be read
	Gates   []pageGate
	Unknown []string
	Engines []pageEngine
}

type pageGate struct {
	Letter, Name, State, Ended string
	Sealed                     bool
	Evidence, Stale            int
	Findings                   []record.Finding
}

type pageEngine struct {
	IID, Host, Role, URL string
	Answered             bool
}

const maxFindings = 200 // of one gate on the page

// report adds the page that a person opens first.
func (c *collection) report(m *Manifest, snap *record.Snapshot) error {
	p := page{Manifest: m, Model: c.clean(c.src.Fleet.Model), Read: snap != nil}
	for _, g := range gateNames {
		row := pageGate{Letter: g.Letter, Name: g.Name, State: record.GatePending}
		if snap != nil {
			c.fillGate(&row, snap.State.Gates[g.Letter])
		}
		p.Gates = append(p.Gates, row)
	}
	if snap != nil {
		for _, a := range snap.State.Unknown {
			p.Unknown = append(p.Unknown, c.clean(fmt.Sprintf("%s on %s: %s", a.Step, a.Host, a.Summary)))
		}
	}
	for _, e := range c.src.Fleet.Engines {
		host := c.src.Fleet.HostOf(e.IID)
		_, ok := m.entry("hosts/" + component(host) + "/engines/" + component(e.IID) + "/version.json")
		p.Engines = append(p.Engines, pageEngine{IID: c.clean(e.IID), Host: c.clean(host), Role: c.clean(e.Role), URL: c.clean(e.URL), Answered: ok})
	}
	var b bytes.Buffer
	if err := reportPage.Execute(&b, p); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	c.keep(Entry{Path: "report.html", Source: "manifest and record", Collector: "report"}, b.Bytes())
	return nil
}

func (c *collection) fillGate(row *pageGate, g record.Gate) {
	if g.State == "" {
		return
	}
	row.State, row.Sealed, row.Evidence = c.clean(g.State), g.Seal != nil, len(g.Evidence)
	if !g.Ended.IsZero() {
		row.Ended = g.Ended.UTC().Format(time.RFC3339)
	}
	for _, e := range g.Evidence {
		if e.Stale {
			row.Stale++
		}
	}
	for _, f := range g.Findings[:min(len(g.Findings), maxFindings)] {
		for _, s := range []*string{&f.Code, &f.Host, &f.Engine, &f.Want, &f.Got, &f.Evidence, &f.Hint, &f.Message} {
			*s = c.clean(*s)
		}
		row.Findings = append(row.Findings, f)
	}
}
