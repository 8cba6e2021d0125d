package docgen

import (
	"fmt"
	"strings"

	"github.com/narwhal-fleet/narwhal/internal/problem"
)

// Exits makes the page of exit codes. Two rows may share a status in JSON; see below the table.
func Exits(codes []problem.Code) Page {
	var b strings.Builder
	b.WriteString("# Exit codes\n\nEvery verb ends with one of these. `status` is the word in the JSON result.\n\n| Code | `status` | Meaning |\n| --- | --- | --- |\n")
	for _, c := range codes {
		status := c.Status
		if status == problem.Terminated {
			status = problem.Interrupted
		}
		fmt.Fprintf(&b, "| %d | `%s` | %s |\n", c.Exit, status, cell(c.Meaning))
	}
	b.WriteString("\nA second signal does not wait for the orderly stop. After 130 and 143 the record says where the\nrun stopped, and the same command goes on from there.\n\n`narwhal serve`, `narwhal standby` and `narwhal tunnel` run until they are told to end: after SIGTERM or SIGINT\nthey stop in order and end with 0. A router whose journal lost rows at the end, because the disk took them no more, ends\nwith 4 and says how many.\n")
	return Page{"exit-codes.md", b.String()}
}

// Rule is one row of the rules' page.
type Rule struct{ ID, Severity, Says string }

// Rules makes the page of rules that a fleet file must keep.
func Rules(rules []Rule) Page {
	var b strings.Builder
	b.WriteString("# Rules of a fleet file\n\n`narwhal validate` names the rule in brackets behind each message. `--strict` turns warnings into\nerrors; a note depends on files of this machine and never becomes one.\n`narwhal schema rules` prints this table.\n\n| Rule | Severity | What it says |\n| --- | --- | --- |\n")
	for _, r := range rules {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", r.ID, r.Severity, cell(r.Says))
	}
	return Page{"rules.md", b.String()}
}

// Metric is one row of the page of metrics.
type Metric struct {
	Name, Type string
	Labels     []string
	Says       string
}

// Metrics makes the page of metrics: those of the contract, the program's own, and how the
// exposition differs from the reference's.
func Metrics(contract, own []Metric, differences []string) Page {
	var b strings.Builder
	b.WriteString("# Metrics\n\n`GET /metrics` of the router. Scrapers that ask for OpenMetrics get exemplars with trace ids where\ntraces are on; those that ask for protobuf get native histograms beside the classic ones.\n")
	for _, s := range []struct {
		title string
		rows  []Metric
	}{{"The contract: `narwhal.metrics` version 2", contract}, {"Of this router", own}} {
		fmt.Fprintf(&b, "\n## %s\n\n| Metric | Type | Labels | Meaning |\n| --- | --- | --- | --- |\n", s.title)
		for _, m := range s.rows {
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", m.Name, m.Type, strings.Join(m.Labels, ", "), cell(m.Says))
		}
	}
	b.WriteString("\n## Differences from the reference\n\n")
	for _, d := range differences {
		b.WriteString("- " + d + "\n")
	}
	return Page{"metrics.md", b.String()}
}

// Variable is an environment variable that the program reads.
type Variable struct {
	Name string
	// Where it is read: by which verbs, or on which machine.
	Where string
	Says  string
}

// Environment makes the page of environment variables.
func Environment(vars []Variable) Page {
	var b strings.Builder
	b.WriteString("# Environment variables\n\nA flag wins over its variable.\n\n| Variable | Read by | What it does |\n| --- | --- | --- |\n")
	for _, v := range vars {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", v.Name, cell(v.Where), cell(v.Says))
	}
	b.WriteString("\nA fleet file names further variables of its own: `env:NAME` in secret references, `${NAME}` in\naddresses, and `engine.engine_api_key_env`.\n")
	return Page{"cli/environment.md", b.String()}
}
