package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/narwhal-fleet/narwhal/internal/docgen"
	"github.com/narwhal-fleet/narwhal/internal/problem"
	"github.com/narwhal-fleet/narwhal/runtime/router"
	"github.com/narwhal-fleet/narwhal/schema"
)

// environment lists the variables that the program reads.
var environment = []docgen.Variable{
	{Name: "NARWHAL_STATE", Where: "all verbs that keep or read records", Says: "folder of the records, where --state is not given"},
	{Name: "XDG_STATE_HOME", Where: "all verbs that keep or read records", Says: "its folder narwhal holds the records, where neither --state nor NARWHAL_STATE is given; without it ~/.local/state/narwhal does"},
	{Name: "SSH_AUTH_SOCK", Where: "verbs that reach hosts", Says: "socket of the SSH agent whose keys are offered"},
	{Name: "XDG_RUNTIME_DIR", Where: "hosts with deploy.supervise: user", Says: "where the user's systemd manager is found; without it /run/user/UID"},
	{Name: "CI", Where: "verbs with progress", Says: "set to anything: lines instead of a status line, also on a terminal"},
	{Name: "NO_COLOR", Where: "verbs with progress", Says: "as CI"},
	{Name: "TERM", Where: "verbs with progress", Says: "dumb: as CI"},
	{Name: "OTEL_EXPORTER_OTLP_ENDPOINT", Where: "serve", Says: "collector of traces (OTLP over HTTP), for example http://127.0.0.1:4318; without it there are none"},
	{Name: "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", Where: "serve", Says: "the same, with the whole path, for example http://127.0.0.1:4318/v1/traces; it wins"},
	{Name: "VLLM_API_KEY", Where: "engine simulated", Says: "key that it demands as a bearer token; without it it asks for none"},
	{Name: "NARWHAL_CRASH_AFTER", Where: "gate run", Says: "for tests: the process kills itself after recording that many events"},
	{Name: "NARWHAL_LOOPBACK", Where: "processes of a sandbox", Says: "set by sandbox hosts to find what their commands left running"},
	{Name: "NARWHAL_REQUIRE_SSHD", Where: "the project's tests", Says: "1 makes a missing sshd a failure instead of a skip"},
	{Name: "NARWHAL_REQUIRE_NETNS", Where: "the project's tests", Says: "1 makes missing network namespaces, nft and iperf3 a failure instead of a skip"},
	{Name: "NARWHAL_FABRIC_IMPAIR_RUNS", Where: "the project's tests", Says: "how often each fault of a link behind an impairing proxy is looked for; once unless it is set"},
	{Name: "NARWHAL_FABRIC_RUNS", Where: "the project's tests", Says: "how often gate D's drill measures eight healthy hosts in network namespaces, and a fifth as often with each fault; half a minute a time"},
	{Name: "NARWHAL_FABRIC_SAMPLE", Where: "the project's tests", Says: "`deploy.fabric.sample` of that drill; one second unless it is set"},
	{Name: "NARWHAL_REQUIRE_PODMAN", Where: "the project's tests", Says: "1 makes missing podman, runc or root a failure instead of a skip"},
	{Name: "NARWHAL_REQUIRE_ETCD", Where: "the project's tests", Says: "1 makes a missing etcd server a failure instead of a skip"},
	{Name: "NARWHAL_REQUIRE_PYTHON", Where: "the project's tests", Says: "1 makes a missing python3 or openssl a failure instead of a skip"},
	{Name: "NARWHAL_REQUIRE_SYSTEMD", Where: "the project's tests", Says: "1 makes a missing systemd, or namespaces in which it cannot be the first process, a failure instead of a skip"},
	{Name: "NARWHAL_REQUIRE_BROWSER", Where: "the project's tests", Says: "1 makes a missing Chromium a failure instead of a skip"},
	{Name: "NARWHAL_REQUIRE_PROMETHEUS", Where: "the project's tests", Says: "1 makes a missing prometheus or promtool a failure instead of a skip"},
	{Name: "NARWHAL_REAL_ENGINES", Where: "make real-engines, real-gates", Says: "folder of the installed vLLM"},
	{Name: "NARWHAL_REAL_MODEL", Where: "make real-engines, real-gates", Says: "folder of the model that it serves"},
}

// generatedPages are the pages of docs/ that come from code.
func generatedPages() []docgen.Page {
	var rules []docgen.Rule
	for _, r := range schema.Rules {
		rules = append(rules, docgen.Rule{ID: r.ID, Severity: string(r.Severity), Says: r.Says})
	}
	pages := docgen.Commands(root(&app{in: nil, out: io.Discard, err: io.Discard}))
	pages = append(pages, docgen.Environment(environment), docgen.Exits(problem.Codes), docgen.Rules(rules), metricsPage(), monitoringPage())
	return append(pages, routerPages()...)
}

func metricsPage() docgen.Page {
	var contract, own []docgen.Metric
	for _, m := range router.Metrics() {
		row := docgen.Metric{Name: m.Name, Type: m.Type, Labels: m.Labels, Says: m.Help}
		if m.Ours {
			own = append(own, row)
		} else {
			contract = append(contract, row)
		}
	}
	return docgen.Metrics(contract, own, router.MetricDifferences)
}

// docsVerb is the hidden command that writes or checks the generated pages.
func docsVerb(a *app) *cobra.Command {
	var dir string
	var check bool
	c := &cobra.Command{
		Use: "docs --output DIR", Short: "Writes the generated pages of the documentation", Hidden: true, Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if check {
				return a.checkDocs(dir)
			}
			changed, err := docgen.Write(a.abs(dir), generatedPages())
			if err != nil {
				return problem.Wrap(problem.Failed, "docs_unwritable", "write the documentation", err, "check the folder and its pages")
			}
			r := &result{data: map[string]any{"changed": append([]string{}, changed...)}, text: func(w io.Writer) {
				fmt.Fprintf(w, "%d pages changed\n", len(changed))
			}}
			for _, p := range changed {
				r.artifacts = append(r.artifacts, artifact{"page", p, "updated"})
			}
			a.result = r
			return nil
		},
	}
	c.Flags().StringVar(&dir, "output", "docs", "folder of the documentation")
	c.Flags().BoolVar(&check, "check", false, "change nothing; fail when a page is not up to date")
	return c
}

func (a *app) checkDocs(dir string) error {
	diffs, err := docgen.Check(a.abs(dir), generatedPages())
	if err != nil {
		return problem.Wrap(problem.Failed, "docs_unreadable", "check the documentation", err, "give the folder with --output")
	}
	var set problem.Set
	for _, d := range diffs {
		set = append(set, problem.New(problem.FailedGate, "docs_stale", fmt.Sprintf("page %s %s", d.Path, d.Why), "make docs brings the pages up to date"))
	}
	if len(set) > 0 {
		return set
	}
	a.result = &result{data: map[string]any{"changed": []string{}}, text: func(w io.Writer) { fmt.Fprintln(w, "the generated pages are up to date") }}
	return nil
}
