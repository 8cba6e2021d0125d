package main

import (
	"bytes"
	"context"
	"encoding/json"
	"html/template"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/gates/fabric"
	"github.com/narwhal-fleet/narwhal/gates/record"
)

// needBrowser skips where there is no Chromium; with NARWHAL_REQUIRE_BROWSER set that fails.
func needBrowser(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	if os.Getenv("NARWHAL_REQUIRE_BROWSER") != "" {
		t.Fatal("there is no Chromium")
	}
	t.Skip("needs Chromium; NARWHAL_REQUIRE_BROWSER makes that a failure")
	return ""
}

// probe reads what a browser made of a page: it runs in the page and leaves its answer there.
const probe = `<script>
const say = q => [...document.querySelectorAll(q)].map(e => { const b = e.getBoundingClientRect(), s = getComputedStyle(e);
  return {text: e.textContent, cls: e.getAttribute("class") || "", label: e.getAttribute("aria-label") || "", width: b.width, height: b.height, back: s.backgroundColor, ink: s.color}; });
const out = {cells: say("table.heat td"), heads: say("table.heat th"), tables: say("table"), pictures: say("svg"), strays: say("script, link[href], img, iframe").length - 1,
  wide: document.documentElement.scrollWidth, view: document.documentElement.clientWidth};
const pre = document.createElement("pre"); pre.id = "probe"; pre.textContent = JSON.stringify(out); document.body.append(pre);
</script>`

// policy forbids everything but styles in the page.
var policy = regexp.MustCompile(`<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">`)

type displayed struct {
	Cells, Heads, Tables, Pictures []struct {
		Text, Cls, Label, Back, Ink string
		Width, Height               float64
	}
	Strays     int
	Wide, View float64
}

// browse opens a page and returns what is shown, and the picture of it.
func browse(t *testing.T, page []byte) (s displayed, picture []byte) {
	t.Helper()
	browser, dir := needBrowser(t), t.TempDir()
	file, shot := filepath.Join(dir, "page.html"), filepath.Join(dir, "shot.png")
	if !bytes.Contains(page, []byte("</body>")) {
		t.Fatal("the page has no end")
	}
	if !policy.Match(page) {
		t.Error("the page lets scripts run")
	}
	page = bytes.Replace(policy.ReplaceAll(page, nil), []byte("</body>"), []byte(probe+"</body>"), 1) // but for the probe
	if err := os.WriteFile(file, page, 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) (string, string) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		var out, errs bytes.Buffer
		cmd := exec.CommandContext(ctx, browser, append([]string{"--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-extensions",
			"--host-resolver-rules=MAP * ~NOTFOUND", "--enable-logging=stderr", "--user-data-dir=" + filepath.Join(dir, "profile"), "--window-size=1280,1600"}, args...)...)
		cmd.Stdout, cmd.Stderr = &out, &errs
		if err := cmd.Run(); err != nil {
			t.Fatalf("%v\n%s", err, tail(errs.String()))
		}
		return out.String(), errs.String()
	}
	dom, said := run("--dump-dom", "file://"+file)
	if i := strings.Index(said, ":CONSOLE"); i >= 0 {
		t.Errorf("the browser says: %s", tail(said[i:]))
	}
	m := regexp.MustCompile(`(?s)<pre id="probe">(.*?)</pre>`).FindStringSubmatch(dom)
	if m == nil {
		t.Fatalf("no answer in the page: %s", tail(dom))
	}
	text := strings.NewReplacer("&amp;", "&", "&lt;", "<", "&gt;", ">").Replace(m[1])
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		t.Fatalf("%v in %s", err, tail(text))
	}
	run("--screenshot="+shot, "file://"+file)
	picture, err := os.ReadFile(shot)
	if err != nil {
		t.Fatal(err)
	}
	return s, picture
}

// colours counts the pixels of a picture by colour.
func colours(t *testing.T, picture []byte) map[[3]uint8]int {
	t.Helper()
	img, err := png.Decode(bytes.NewReader(picture))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[[3]uint8]int{}
	b := img.Bounds()
	for y := b.Min.Y; y < b.Max.Y; y++ {
		for x := b.Min.X; x < b.Max.X; x++ {
			r, g, bl, _ := img.At(x, y).RGBA()
			seen[[3]uint8{uint8(r >> 8), uint8(g >> 8), uint8(bl >> 8)}]++
		}
	}
	return seen
}

// A heat map with an edge of each state has its colours and its words on a real screen.
func TestHeatMapInABrowser(t *testing.T) {
	needBrowser(t)
	heat := fabric.Heat{Hosts: []string{"h0", "h1", "h2"}, Floor: 4, Usual: 9.4, Rows: []fabric.HeatRow{
		{Host: "h0", Cells: []fabric.Cell{{State: "self", Text: "–", Label: "h0 itself"}, {State: "good", Text: "9.41", Label: "h0 to h1: 9.41 Gbit/s"}, {State: "good", Shade: 3, Text: "6.6", Label: "h0 to h2: 6.6 Gbit/s"}}},
		{Host: "h1", Cells: []fabric.Cell{{State: "bad", Text: "3", Marks: "below floor", Label: "h1 to h0: 3 Gbit/s, below floor"}, {State: "self", Text: "–", Label: "h1 itself"}, {State: "low", Text: "6", Marks: "−36 %", Label: "h1 to h2: 6 Gbit/s, −36 %"}}},
		{Host: "h2", Cells: []fabric.Cell{{State: "none", Text: "?", Label: "h2 to h0: not measured"}, {State: "bad", Text: "×", Marks: "unreachable", Label: "h2 to h1: unreachable: <script>document.title = 'taken'</script>"}, {State: "self", Text: "–", Label: "h2 itself"}}},
	}, Outliers: []record.Finding{{Code: "edge-slow", Host: "h1", Got: "3", Want: "4", Message: "h1 to h0 carries 3 Gbit/s <b>only</b>", Hint: "look at the cable"}}}
	tmpl, err := template.New("report").Parse(reportTemplate)
	if err != nil {
		t.Fatal(err)
	}
	var page bytes.Buffer
	if err := tmpl.Execute(&page, reportData{Heat: heat}); err != nil {
		t.Fatal(err)
	}
	s, picture := browse(t, page.Bytes())
	want := map[string]string{"self": "rgb(238, 241, 244)", "none": "rgb(238, 241, 244)", "bad": "rgb(139, 26, 26)", "low": "rgb(243, 199, 122)", "good0": "rgb(227, 244, 231)", "good3": "rgb(143, 204, 158)"}
	if len(s.Cells) != 9 || len(s.Heads) != 7 {
		t.Fatalf("%d cells and %d heads are shown", len(s.Cells), len(s.Heads))
	}
	for i, row := range heat.Rows {
		for j, c := range row.Cells {
			state := c.State
			if state == "good" {
				state += string(rune('0' + c.Shade))
			}
			got := s.Cells[3*i+j]
			if got.Back != want[state] || got.Text != c.Text+c.Marks || got.Label != c.Label || got.Width < 40 || got.Height < 15 || got.Ink == got.Back {
				t.Errorf("%s to %s: %+v, want %s of %s", row.Host, heat.Hosts[j], got, want[state], c.Text+c.Marks)
			}
		}
	}
	seen := colours(t, picture)
	for _, c := range [][3]uint8{{139, 26, 26}, {243, 199, 122}, {227, 244, 231}, {143, 204, 158}} {
		if seen[c] < 500 {
			t.Errorf("the picture has %d pixels of %v", seen[c], c)
		}
	}
	if s.Strays != 0 || s.Wide > s.View {
		t.Errorf("%d outside references, %g wide in a window of %g", s.Strays, s.Wide, s.View)
	}
}

// The report of a run and the page of a simulation open in a real browser, whole and without
// anything from outside.
func TestPagesInABrowser(t *testing.T) {
	t.Parallel()
	needBrowser(t)
	w := newWorld(t, 2, nil)
	w.must(0, w.gates("--to", "D"))
	s, _ := browse(t, []byte(w.must(0, w.run("gate", "report", "-f", w.fleet, "--as", "html")).out))
	if len(s.Cells) != 4 || len(s.Tables) < 3 || s.Strays != 0 {
		t.Errorf("the report shows %d cells, %d tables, %d outside references", len(s.Cells), len(s.Tables), s.Strays)
	}
	for _, c := range s.Cells {
		if c.Cls != "heat-self shade-0" && !strings.HasPrefix(c.Cls, "heat-good") || c.Label == "" {
			t.Errorf("of a healthy fabric a cell is %+v", c)
		}
	}
	csv, page := filepath.Join(w.dir, "w.csv"), filepath.Join(w.dir, "page.html")
	if err := os.WriteFile(csv, []byte("at_s,input,output,class\n0,512,16,a\n0.5,512,16,b\n1,900,16,a\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.must(0, w.run("simulate", csv, "--ttft", "2", "--tpot", "0.05", "--html", page))
	b, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if s, _ = browse(t, b); len(s.Pictures) == 0 || s.Strays != 0 {
		t.Errorf("the simulation shows %d pictures, %d outside references", len(s.Pictures), s.Strays)
	}
	for _, p := range s.Pictures {
		if p.Width < 100 || p.Height < 20 {
			t.Errorf("a picture of %g by %g", p.Width, p.Height)
		}
	}
}
