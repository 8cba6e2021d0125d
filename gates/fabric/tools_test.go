package fabric

import (
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
)

// table is what a perftest program prints of one row.
func table(row string) string {
	return " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n " + row + "\n"
}

func sample(t testing.TB, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestParse reads recorded outputs.
func TestParse(t *testing.T) {
	for file, c := range map[string]struct {
		parse       func([]byte) (reading, error)
		gbps        float64
		retransmits int64
	}{
		"iperf3-3.9.json":       {parseIperf, 1.6746796770243485, 1664},
		"iperf3-3.12.json":      {parseIperf, 0, -1}, // only that it is read
		"ib_write_bw-gbits.txt": {parsePerftest, 0.48, 0},
		"ib_write_bw-mb.txt":    {parsePerftest, 1476.74 * 8 * 1.048576 / 1000, 0},
		"ucx_perftest.txt":      {parseUCX, 46743.62 * 8 * 1.048576 / 1000, 0},
	} {
		text := sample(t, file)
		for how, b := range map[string]string{"": text, " with CRLF": strings.ReplaceAll(text, "\n", "\r\n"), " in colour": coloured(file, text)} {
			r, err := c.parse([]byte(b))
			if err != nil || c.gbps > 0 && math.Abs(r.gbps-c.gbps) > 1e-9 || r.gbps <= 0 || c.retransmits >= 0 && r.retransmits != c.retransmits {
				t.Errorf("%s%s: %+v, %v", file, how, r, err)
			}
		}
	}
}

func coloured(file, text string) string {
	if strings.HasSuffix(file, ".json") {
		return text
	}
	return strings.ReplaceAll(strings.ReplaceAll(text, "Final:", "\x1b[32mFinal:\x1b[0m"), "0.48", "\x1b[1m0.48\x1b[0m")
}

// TestParseRefuses: what a tool prints when it fails, is cut off, speaks another language or
// lies is never a rate.
func TestParseRefuses(t *testing.T) {
	iperf, gbits, ucx := sample(t, "iperf3-3.9.json"), sample(t, "ib_write_bw-gbits.txt"), sample(t, "ucx_perftest.txt")
	for name, c := range map[string]struct {
		parse func([]byte) (reading, error)
		text  string
	}{
		"iperf3 refused":          {parseIperf, sample(t, "iperf3-3.12-refused.json")},
		"iperf3 cut":              {parseIperf, iperf[:len(iperf)-300]},
		"iperf3 twice":            {parseIperf, iperf + iperf},
		"iperf3 of nothing":       {parseIperf, "{}"},
		"iperf3 over UDP":         {parseIperf, strings.Replace(iperf, `"TCP"`, `"UDP"`, 1)},
		"iperf3 of no bytes":      {parseIperf, strings.Replace(iperf, "2094000000", "0", 1)},
		"iperf3 of no time":       {parseIperf, strings.Replace(iperf, "10.003107,\n\t\t\t\"bytes\"", "-1,\n\t\t\t\"bytes\"", 1)},
		"iperf3 of another rate":  {parseIperf, strings.Replace(iperf, "1674679677.0243485", "9e15", 1)},
		"iperf3 with less":        {parseIperf, strings.Replace(iperf, "1664", "-1", 1)},
		"perftest of no runs":     {parsePerftest, table("2 0 0.00 95.00 0.01")},
		"perftest of no bytes":    {parsePerftest, table("0 100 0.00 95.00 0.01")},
		"perftest of half a run":  {parsePerftest, table("2 0.5 0.00 95.00 0.01")},
		"perftest above its peak": {parsePerftest, table("2 100 90.00 95.00 0.01")},
		"UCX of no runs":          {parseUCX, strings.Replace(sample(t, "ucx_perftest.txt"), "1000      0.240", "0         0.240", 1)},
		"perftest refused":        {parsePerftest, sample(t, "ib_write_bw-refused.txt")},
		"perftest cut":            {parsePerftest, sample(t, "ib_read_bw-cut.txt")},
		"perftest without figure": {parsePerftest, gbits[:strings.Index(gbits, " 8    ")]},
		"perftest in a language":  {parsePerftest, strings.Replace(gbits, "0.48", "0,48", 1)},
		"perftest of nothing":     {parsePerftest, strings.Replace(gbits, "0.48", "0.00", 1)},
		"perftest below nothing":  {parsePerftest, strings.Replace(gbits, "0.48", "-5", 1)},
		"perftest endless":        {parsePerftest, strings.Replace(gbits, "0.48", "+Inf", 1)},
		"perftest no number":      {parsePerftest, strings.Replace(gbits, "0.48", "NaN", 1)},
		"perftest in other units": {parsePerftest, strings.ReplaceAll(gbits, "Gb/sec", "GiB/sec")},
		"ucx cut":                 {parseUCX, sample(t, "ucx_perftest-cut.txt")},
		"ucx in other units":      {parseUCX, strings.Replace(ucx, "(MB/s)", "(GB/s)", 1)},
		"ucx short":               {parseUCX, strings.Replace(ucx, "597         598", "597", 1)},
		"ucx in a language":       {parseUCX, strings.Replace(ucx, "46743.62", "46743,62", 1)},
		"ucx of nothing":          {parseUCX, strings.Replace(ucx, "46743.62", "0", 1)},
		"an empty output":         {parsePerftest, ""},
		"nothing of UCX":          {parseUCX, ""},
		"a page of HTML":          {parseIperf, "<html>"},
	} {
		if r, err := c.parse([]byte(c.text)); err == nil {
			t.Errorf("%s: read as %+v", name, r)
		} else if strings.ContainsAny(err.Error(), "\x1b\n") {
			t.Errorf("%s: %q", name, err)
		}
	}
}

// FuzzParse feeds the parsers anything: a rate that comes out is one that a link can have.
func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("testdata/*[.txt|.json]")
	if err != nil || len(files) == 0 {
		f.Fatal(err)
	}
	for _, name := range files {
		if b, err := os.ReadFile(name); err == nil {
			f.Add(b)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, tl := range tools {
			if r, err := tl.parse(b); err == nil && (!(r.gbps > 0) || r.gbps > 1e5 || r.retransmits < 0 || strings.ContainsRune(r.version, '\x1b')) {
				t.Errorf("%+v from %q", r, b)
			}
		}
	})
}

// toolRequest is one run of a tool by a server's name.
func toolRequest(tool, address string, argv ...string) ToolRequest {
	return ToolRequest{Tool: tool, From: "h1", To: "h2", Address: address, Runs: []ToolRun{{Server: tool, Argv: argv}}, Repeats: 1, For: fleet.Duration(time.Second)}
}

// TestToolRuns drives real commands where they are installed: iperf3.
func TestToolRuns(t *testing.T) {
	if _, err := exec.LookPath(toolIperf); err != nil {
		if os.Getenv("NARWHAL_REQUIRE_NETNS") == "1" {
			t.Fatal("iperf3 is required, and not installed")
		}
		t.Skip("iperf3 is not installed")
	}
	c := toolCall{From: "127.0.0.1", To: "127.0.0.1", Port: freePort(t), Streams: 2, For: time.Second}
	address := serving(t, map[string][]string{toolIperf: tools[toolIperf].server(c)})
	q := toolRequest(toolIperf, address, tools[toolIperf].client(c)...)
	for range 2 { // the server ends with its session, and another begins
		s, err := MeasureTool(limited(t), q)
		if err != nil {
			t.Fatal(err)
		}
		if s.Gbps <= 0 || !strings.HasPrefix(s.Version, "iperf 3") || s.Tool != toolIperf {
			t.Errorf("sample %+v", s)
		}
	}
}

// TestToolsThatFail are programs in place of the tools: silent, talkative, failing, missing.
func TestToolsThatFail(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	script := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	script(toolWrite, "cat")
	address := serving(t, map[string][]string{toolWrite: {"sleep", "60"}, toolUCX: {filepath.Join(dir, "missing")}})
	q := toolRequest(toolWrite, address, toolWrite)
	for text, want := range map[string]string{
		"sleep 1.1; echo nothing of use":                      "no table of figures",
		"sleep 1.1; yes | head -c 9000000":                    "prints more than",
		"sleep 1.1; printf 'bad\\033[31m GID\\n' >&2; exit 3": "bad[31m GID",
	} {
		script(toolWrite, text)
		if _, err := MeasureTool(limited(t), q); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	q = toolRequest(toolUCX, address, toolUCX)
	if _, err := MeasureTool(limited(t), q); err == nil || !strings.Contains(err.Error(), "start ucx_perftest") {
		t.Errorf("a server that is not installed: %v", err)
	}
	q = toolRequest(toolRead, address, toolRead)
	if _, err := MeasureTool(limited(t), q); err == nil || !strings.Contains(err.Error(), "starts no") {
		t.Errorf("a server that was not planned: %v", err)
	}
}

// TestSizedToolRuns: each size and both directions are run as often as asked, with a server of
// its own each; the edge's rate is the median of those of 1 MiB, and what is compared with
// later samples names the commands.
func TestSizedToolRuns(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	// The client tells a rate that follows from its size, and counts its runs in a file.
	script := `#!/bin/sh
[ "$1" = -p ] || exit 9
echo run >>"` + dir + `/$4$6"
n=$(wc -l <"` + dir + `/$4$6")
printf ' #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n %s 100 0 %s 0\n' "$4" "$(($4 / 1024 + n))"
`
	if err := os.WriteFile(filepath.Join(dir, toolWrite), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	servers := map[string][]string{}
	q := toolRequest(toolWrite, "")
	q.Runs, q.Repeats = nil, 3
	for _, k := range []kind{{bytes: 64 << 10}, {bytes: mainBytes}, {bytes: mainBytes, both: true}} {
		argv := tools[toolWrite].client(toolCall{Port: 1, Bytes: k.bytes, Both: k.both, For: time.Second, GID: -1})
		if k.both {
			argv[6] = "both" // in place of its length, for the script
		}
		servers[k.server(toolWrite)] = []string{"sleep", "60"}
		q.Runs = append(q.Runs, ToolRun{Server: k.server(toolWrite), Bytes: k.bytes, Both: k.both, Argv: argv})
	}
	q.Address = serving(t, servers)
	s, err := MeasureTool(limited(t), q)
	if err != nil {
		t.Fatal(err)
	}
	if s.Gbps != 1026 || s.Spread <= 0 || len(s.Runs) != 3 || s.Runs[0].Gbps != 66 || s.Runs[2].Gbps != 1026 || !s.Runs[2].Both || len(s.Runs[1].Repeat) != 3 || len(s.NotMeasured) != 4 || s.Fingerprint == "" || s.Absent != "" {
		t.Errorf("sample %+v", s)
	}
	q.History = []Past{{Fingerprint: s.Fingerprint, Forward: 1}, {Fingerprint: "another", Forward: 2}}
	if again, err := MeasureTool(limited(t), q); err != nil || len(again.History) != 1 || again.Fingerprint != s.Fingerprint {
		t.Errorf("history %+v, %v", again.History, err)
	}
	q.Runs[1].Argv = append(q.Runs[1].Argv, "-x", "1")
	if other, err := MeasureTool(limited(t), q); err != nil || len(other.History) != 0 {
		t.Errorf("history of other commands: %+v, %v", other.History, err)
	}
}

// TestOptionalTool: where the fleet leaves a tool open, one that an end lacks is an answer that
// names the end; else it is an error.
func TestOptionalTool(t *testing.T) {
	dir := t.TempDir()
	q := toolRequest(toolIperf, serving(t, map[string][]string{toolIperf: {filepath.Join("no-such-program-of-any-host")}}), toolIperf)
	t.Setenv("PATH", dir)
	q.Optional = true
	if s, err := MeasureTool(limited(t), q); err != nil || s.Absent != "h1" {
		t.Errorf("not on the asking host: %+v, %v", s, err)
	}
	if err := os.WriteFile(filepath.Join(dir, toolIperf), []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if s, err := MeasureTool(limited(t), q); err != nil || s.Absent != "h2" {
		t.Errorf("not on the other host: %+v, %v", s, err)
	}
	q.Optional = false
	if _, err := MeasureTool(limited(t), q); err == nil || !strings.Contains(err.Error(), "not installed on h2") {
		t.Errorf("a tool that must be there: %v", err)
	}
}
