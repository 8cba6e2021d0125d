package main

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"html/template"

	"github.com/spf13/cobra"

	"path/filepath"

	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/fabric"
	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/internal/problem"
)

//go:embed report.html.tmpl
var reportTemplate string

func gateReportVerb(a *app) *cobra.Command {
	var f gateFlags
	var as string
	c := &cobra.Command{
		Use: "report", Short: "One self-contained report of a run", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v, err := a.readRun(cmd, f)
			if err != nil {
				return err
			}
			st := statusOf(v.fleet.Deploy.Name, filepath.Base(v.snap.Dir), v.snap.Dir, v.snap.State, map[record.Key]string{}, v.fleet.Deploy.Router.Listen, v.snap.Load)
			var b []byte
			switch as {
			case "text":
				var buf bytes.Buffer
				st.print(&buf)
				b = buf.Bytes()
			case "html":
				b, err = reportHTML(st, v.snap.State, v.snap.Load)
			case "junit":
				b, err = reportJUnit(st)
			default:
				return problem.New(problem.Invalid, "invalid_arguments", fmt.Sprintf("no report form %q", as), "use text, html or junit")
			}
			if err != nil {
				return err
			}
			a.result = &result{raw: b, data: st}
			return nil
		},
	}
	f.add(c)
	c.Flags().StringVar(&as, "as", "text", "text, html or junit")
	return c
}

type reportData struct {
	Status  runStatus
	Heat    fabric.Heat
	Facts   []string
	Summary string
	Rates   []reportRate
}

// reportHTML is one page without outside references. Text from hosts is escaped by the
// template.
func reportHTML(st runStatus, state record.State, load func(record.Ref) ([]byte, error)) ([]byte, error) {
	d := reportData{Status: st}
	view, err := gates.ViewAt(state, load)
	if err != nil {
		return nil, err
	}
	if view.Fleet.Deploy != nil {
		d.Heat = fabric.HeatOf(view)
	}
	d.Summary, d.Rates = handedOver(st.Acceptance), reportRates(st.Acceptance)
	t, err := template.New("report").Parse(reportTemplate)
	if err != nil {
		return nil, fmt.Errorf("read the report's template: %w", err)
	}
	var buf bytes.Buffer
	if err := t.Execute(&buf, d); err != nil {
		return nil, fmt.Errorf("write the report: %w", err)
	}
	return buf.Bytes(), nil
}

type junitSuite struct {
	XMLName  xml.Name    `xml:"testsuite"`
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Skipped  int         `xml:"skipped,attr"`
	Cases    []junitCase `xml:"testcase"`
}

type junitCase struct {
	Name    string     `xml:"name,attr"`
	Class   string     `xml:"classname,attr"`
	Failure *junitNote `xml:"failure,omitempty"`
	Skipped *junitNote `xml:"skipped,omitempty"`
}

type junitNote struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

// reportJUnit is a test case a gate: anything but passed is a failure or was not run.
func reportJUnit(st runStatus) ([]byte, error) {
	s := junitSuite{Name: "narwhal " + st.Fleet + " " + st.Run, Tests: len(st.Gates)}
	for _, g := range st.Gates {
		c := junitCase{Name: "gate " + g.Gate + " " + g.Title, Class: "narwhal." + st.Fleet}
		switch g.State {
		case record.VerdictPassed:
		case record.VerdictFailed, record.VerdictInconclusive:
			b, _ := json.MarshalIndent(g.Findings, "", "  ")
			c.Failure = &junitNote{Message: g.State, Text: string(b)}
			s.Failures++
		default:
			c.Skipped = &junitNote{Message: g.State}
			s.Skipped++
		}
		s.Cases = append(s.Cases, c)
	}
	b, err := xml.MarshalIndent(s, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write the report: %w", err)
	}
	return append([]byte(xml.Header), append(b, '\n')...), nil
}
