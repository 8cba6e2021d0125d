package bundle

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/fleet/remote"
	"github.com/narwhal-fleet/narwhal/gates/record"
)

var _ Host = (*remote.Host)(nil)

func TestCollectsEverythingThatAnswers(t *testing.T) {
	w := healthy(t)
	src := w.source()
	src.RunDir = testRun(t)
	sum, archive := collect(t, src)
	if len(sum.Missing) > 0 || strings.Join(sum.Hosts, " ") != "alpha-1 alpha-2" || sum.Redactions != 0 {
		t.Errorf("summary %+v", sum)
	}
	r := verified(t, archive)
	m := r.Manifest()
	if m.Fleet != "tern" || m.Run != filepath.Base(src.RunDir) || m.Created != "2026-11-29T18:51:02Z" || len(m.Entries) != sum.Collected {
		t.Errorf("manifest %+v", m)
	}
	for path, want := range map[string]string{
		"hosts/alpha-1/system.txt":                 "Linux alpha-1",
		"hosts/alpha-1/etc/host.json":              "etc/host.json",
		"hosts/alpha-1/run/engine-p0.log":          "run/engine-p0.log",
		"hosts/alpha-1/run/sidecar-p0.json":        "sidecar-p0",
		"hosts/alpha-1/attest/p0.json":             "attest/p0.json",
		"hosts/alpha-2/engines/d0/version.json":    "0.9",
		"hosts/alpha-2/engines/d0/models.json":     "tern-7b",
		"hosts/alpha-1/engines/p0/metrics.txt":     "vllm:prompt_tokens_total",
		"router/ready.json":                        "/ready",
		"router/state.json":                        "/narwhal/state",
		"router/files/fleet.json":                  "router/fleet.json",
		"router/journal.jsonl":                     "journal",
		"record/log.jsonl":                         "run.created",
		"record/plan.json":                         "C/launch/p0",
		"record/fleet.json":                        "narwhal.fleet",
		"record/seals/A.sigstore.json":             "dsseEnvelope",
		"report.html":                              "edge-slow",
		ManifestFile:                               "narwhal.bundle",
		"record/objects/" + objectOf("of alpha-1"): "of alpha-1",
		"hosts/alpha-1/run/router.log":             "run/router.log",
		"hosts/alpha-1/engines/p0/version.json":    "0.9",
		"router/health.json":                       "/health",
		"router/metrics.txt":                       "/metrics",
		"hosts/alpha-2/run/engine-d0.json":         "engine-d0",
		"hosts/alpha-1/run/router.json":            "run/router.json",
	} {
		if got := text(t, r, path); !strings.Contains(got, want) {
			t.Errorf("%s holds %q, want %q in it", path, got, want)
		}
	}
	if len(w.ran) != 2 {
		t.Errorf("commands %v: one a host is enough", w.ran)
	}
}

func objectOf(what string) string { return digestOf([]byte(`{"facts":"` + what + `"}`)) }

// The record in a bundle is a record: it verifies where it is unpacked.
func TestRecordInBundleVerifies(t *testing.T) {
	src := healthy(t).source()
	src.RunDir = testRun(t)
	_, archive := collect(t, src)
	r := verified(t, archive)
	dir := t.TempDir()
	for _, e := range r.Manifest().Entries {
		if name, ok := strings.CutPrefix(e.Path, "record/"); ok {
			to := filepath.Join(dir, filepath.FromSlash(name))
			if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o700), os.WriteFile(to, []byte(text(t, r, e.Path)), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
	}
	rep, err := record.Verify(dir)
	if err != nil || len(rep.Problems) > 0 || rep.Events == 0 || len(rep.Seals) != 1 {
		t.Errorf("%+v %v", rep.Problems, err)
	}
}

func TestSameAnswersGiveTheSameBytes(t *testing.T) {
	run := testRun(t)
	var first []byte
	for range 3 {
		src := healthy(t).source()
		src.RunDir = run
		_, archive := collect(t, src)
		if first == nil {
			first = archive
		}
		if !bytes.Equal(first, archive) {
			t.Fatal("two bundles of the same answers differ")
		}
	}
}

func TestSecretsReachNoByte(t *testing.T) {
	w := healthy(t)
	const literal, named = `lit"eral-S3CRET`, "named-S3CRET-9f8e7d"
	pem := "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEEIPEMSECRETPEMSECRET\n-----END EC PRIVATE KEY-----\n"
	w.files["alpha-1:/opt/narwhal/run/engine-p0.log"] = answer{data: []byte("HF_TOKEN=" + named + "\nsaw " + literal + "\n" + pem + "Authorization: Bearer " + named + "\n")}
	w.files["alpha-1:/opt/narwhal/run/engine-p0.json"] = answer{data: []byte(`{"env": {"API_KEY": "` + named + `"}, "argv": ["--api-key", "` + named + `"], "note": "lit\"eral-S3CRET"}` + "\n")}
	w.files["alpha-1:/opt/narwhal/router/journal.jsonl"] = answer{data: []byte(`{"rid":"1","url":"http://u:` + named + `@h/"}` + "\n" + `{"rid":"2"}` + "\n" + `{"unfinished":"`)}
	w.files["alpha-1:/opt/narwhal/run/router.log"] = answer{err: errors.New("get: password=" + named)}
	w.urls["alpha-1:http://127.0.0.1:8000/narwhal/state"] = answer{data: []byte("b64 " + base64.StdEncoding.EncodeToString([]byte(literal)))}
	w.urls["alpha-1:http://127.0.0.1:8000/ready"] = answer{data: []byte(`{"api_key":"` + named + `"}`), err: &StatusError{503}}
	w.urls["alpha-2:http://192.0.2.12:8100/metrics"] = answer{err: errors.New("dial " + literal + "\x1b[31m\n")}
	src := w.source()
	src.Literals = []fleet.Secret{fleet.NewSecret(literal)}
	src.RunDir = testRun(t)
	sum, archive := collect(t, src)
	all := unpacked(t, archive)
	for _, secret := range []string{literal, named, "S3CRET", "PEMSECRET", base64.StdEncoding.EncodeToString([]byte(literal))[:12]} {
		if bytes.Contains(all, []byte(secret)) {
			t.Errorf("%q is in the archive", secret)
		}
	}
	r := verified(t, archive)
	if got := text(t, r, "router/journal.jsonl"); strings.Count(got, "\n") != 2 || !strings.HasSuffix(got, "{\"rid\":\"2\"}\n") {
		t.Errorf("journal: %q", got)
	}
	if miss := missingOf(sum); keysOf(miss) != "hosts/alpha-1/run/router.log hosts/alpha-2/engines/d0/metrics.txt" || strings.ContainsAny(miss["hosts/alpha-2/engines/d0/metrics.txt"], "\x1b\n") {
		t.Errorf("missing: %q", miss)
	}
	m := r.Manifest()
	if e, _ := m.entry("router/ready.json"); e.Redactions != 1 || !strings.Contains(e.Note, "503") {
		t.Errorf("entry of an answer with an error status: %+v", e)
	}
	if e, _ := m.entry("hosts/alpha-1/run/engine-p0.log"); e.Redactions != 4 || sum.Redactions < 9 {
		t.Errorf("entry %+v, %d redactions in all", e, sum.Redactions)
	}
}

func TestOneFailingHostCostsOnlyItself(t *testing.T) {
	w := healthy(t)
	w.open["alpha-2"] = errors.New("reach host alpha-2: connect: refused")
	sum, archive := collect(t, w.source())
	miss := missingOf(sum)
	if keysOf(miss) != "hosts/alpha-2 record" || !strings.Contains(miss["hosts/alpha-2"], "refused") || strings.Join(sum.Hosts, "") != "alpha-1" {
		t.Errorf("missing %v, hosts %v", miss, sum.Hosts)
	}
	if got := text(t, verified(t, archive), "report.html"); !strings.Contains(got, "connect: refused") {
		t.Error("the report does not say what is missing")
	}
}

func TestHangingHostIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := healthy(t)
		w.hang["alpha-2"] = true
		begin := time.Now()
		sum, archive := collect(t, w.source())
		if d := time.Since(begin); d < scriptLimit || d > hostLimit {
			t.Errorf("it took %s", d)
		}
		if len(sum.Hosts) != 1 || len(missingOf(sum)) != 10 {
			t.Errorf("hosts %v, missing %v", sum.Hosts, sum.Missing)
		}
		verified(t, archive)
	})
}

func TestEndedContextGivesNoBundle(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("stopped by a person")
	cancel(why)
	w := healthy(t)
	var b bytes.Buffer
	if _, err := Collect(ctx, w.source(), &b); !errors.Is(err, why) || b.Len() > 0 {
		t.Errorf("%v, %d bytes written", err, b.Len())
	}
}

func TestLongLogsAreTakenFromTheirEnd(t *testing.T) {
	w := healthy(t)
	log := []byte(strings.Repeat("a line of the log\n", maxLog/18+100))
	w.files["alpha-1:/opt/narwhal/run/engine-p0.log"] = answer{data: log}
	w.runs["alpha-1:tail /opt/narwhal/run/engine-p0.log"] = answer{data: log[len(log)-maxLog:]}
	w.files["alpha-1:/opt/narwhal/run/router.log"] = answer{data: bytes.Repeat([]byte("x"), maxLog+1)}
	w.runs["alpha-1:tail /opt/narwhal/run/router.log"] = answer{data: bytes.Repeat([]byte("x"), maxLog)}
	w.files["alpha-1:/opt/narwhal/run/engine-p0.json"] = answer{data: make([]byte, maxFile+1)}
	sum, archive := collect(t, w.source())
	r := verified(t, archive)
	got := text(t, r, "hosts/alpha-1/run/engine-p0.log")
	if !strings.HasPrefix(got, "a line") || len(got) < maxLog-20 || len(got) > maxLog {
		t.Errorf("%d bytes, beginning with %.20q", len(got), got)
	}
	m := r.Manifest()
	if e, _ := m.entry("hosts/alpha-1/run/engine-p0.log"); !e.Truncated {
		t.Error("the entry does not say that it is a part")
	}
	if got := text(t, r, "hosts/alpha-1/run/router.log"); got != "" {
		t.Error("a part of a line was kept")
	}
	if why := missingOf(sum)["hosts/alpha-1/run/engine-p0.json"]; !strings.Contains(why, "larger than") {
		t.Errorf("a file that is too large: %q", why)
	}
}

func TestAbsentFiles(t *testing.T) {
	w := healthy(t)
	w.runs["alpha-2:script"] = answer{err: errors.New("run script: exit 127")}
	w.files["alpha-2:/srv/narwhal/run/engine-d0.log"] = answer{err: errGone}
	w.files["alpha-2:/srv/narwhal/run/fabric.json"] = answer{err: errGone} // may be absent
	w.files["alpha-2:/srv/narwhal/run/fabric.log"] = answer{err: errGone}
	sum, _ := collect(t, w.source())
	if got := keysOf(missingOf(sum)); got != "hosts/alpha-2/run/engine-d0.log hosts/alpha-2/system.txt record" {
		t.Errorf("missing: %s", got)
	}
}

// A host may list anything; only plain names in its own folders are asked for, and no key.
func TestHostileListing(t *testing.T) {
	w := healthy(t)
	w.runs["alpha-2:script"] = answer{data: []byte("== files\netc/host.json\netc/sidecar.key\nrun/../../etc/shadow.json\n/etc/passwd\nrun/credentials.json\nrun/x.key.json\n" +
		"run/a b.json\nrun/id_rsa.json\nrouter/z.json\nrun/extra.json\nrun/\x1b.json\n== x\nrun/late.json\n")}
	w.files["alpha-2:/srv/narwhal/run/extra.json"] = answer{data: []byte("{}")}
	sum, archive := collect(t, w.source())
	for _, p := range w.got {
		if strings.HasPrefix(p, "alpha-2:") && p != "alpha-2:/srv/narwhal/etc/host.json" && p != "alpha-2:/srv/narwhal/run/extra.json" {
			t.Errorf("asked for %q", p)
		}
	}
	if text(t, verified(t, archive), "hosts/alpha-2/run/extra.json") != "{}" {
		t.Error("a listed file was not taken")
	}
	if got := keysOf(missingOf(sum)); got != "hosts/alpha-2/run/engine-d0.json hosts/alpha-2/run/engine-d0.log record" {
		t.Errorf("missing: %s", got)
	}
}

// A host id or engine id never makes an unsafe path.
func TestHostileNames(t *testing.T) {
	w := healthy(t)
	d := w.fleet.Deploy
	w.fleet.Engines[1].IID = "../../d\"0"
	d.Engines["../../d\"0"] = fleet.Place{Host: "../evil"}
	d.Hosts["../evil"] = fleet.Host{Root: "/srv/narwhal"}
	w.runs["../evil:script"] = answer{data: []byte("== files\n== x\n")}
	for _, p := range []string{"version", "v1/models", "metrics"} {
		w.urls["../evil:http://192.0.2.12:8100/"+p] = answer{data: []byte("{}")}
	}
	_, archive := collect(t, w.source())
	text(t, verified(t, archive), "hosts/%2E.%2Fevil/engines/%2E.%2F..%2Fd%220/version.json")
}

func TestRecordWithASecretIsLeftOut(t *testing.T) {
	src := healthy(t).source()
	var bad record.Ref
	src.RunDir = testRun(t, func(r *record.Run) {
		bad, _ = r.Store("text/plain", []byte("api_key=abcdef123456 in evidence"))
		if _, err := r.Append(record.KindEvidence, "B", "", "", record.Evidence{Key: record.NewKey("B", "x"), Ref: bad}); err != nil {
			t.Fatal(err)
		}
	})
	sum, archive := collect(t, src)
	if bytes.Contains(unpacked(t, archive), []byte("abcdef123456")) {
		t.Error("the secret is in the archive")
	}
	if miss := missingOf(sum); keysOf(miss) != "record/objects/"+bad.SHA256 || !strings.Contains(miss["record/objects/"+bad.SHA256], "looks like a secret after") {
		t.Errorf("missing: %v", miss)
	}
}

func TestBrokenRecord(t *testing.T) {
	src := healthy(t).source()
	src.RunDir = testRun(t)
	log := filepath.Join(src.RunDir, record.LogFile)
	b, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(log, bytes.Replace(b, []byte("gate.started"), []byte("gate.stopped"), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	sum, archive := collect(t, src)
	if why := missingOf(sum)["record"]; !strings.Contains(why, "line") {
		t.Errorf("missing: %v", sum.Missing)
	}
	r := verified(t, archive)
	if !strings.Contains(text(t, r, "record/log.jsonl"), "gate.stopped") || !strings.Contains(text(t, r, "report.html"), "could not be read") {
		t.Error("the broken log is not there, or the report is silent")
	}
}

func TestReportEscapes(t *testing.T) {
	w := healthy(t)
	w.fleet.Model = `<img src=x onerror=alert(1)>`
	src := w.source()
	src.RunDir = testRun(t)
	_, archive := collect(t, src)
	got := text(t, verified(t, archive), "report.html")
	for _, bad := range []string{"<script", "<img", "http-equiv=\"refresh", "src=\"", "href="} {
		if strings.Contains(got, bad) {
			t.Errorf("the report holds %s", bad)
		}
	}
	for _, want := range []string{"&lt;script&gt;", "3.1 Gbit/s", `class="passed"`, `class="failed"`} {
		if !strings.Contains(got, want) {
			t.Errorf("the report lacks %s", want)
		}
	}
}

// The script is real: a shell runs it over a real folder.
func TestDescribeRunsInAShell(t *testing.T) {
	root := filepath.Join(t.TempDir(), "it's here")
	for _, name := range []string{"etc/host.json", "run/engine-p0.log", "run/a.json", "router/journal.jsonl", "etc/sidecar.key"} {
		p := filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o700), os.WriteFile(p, []byte("x"), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(root, "run", "link.json")); err != nil {
		t.Fatal(err)
	}
	f := testFleet()
	f.Deploy.Hosts["alpha-1"] = fleet.Host{Root: root}
	out, err := exec.CommandContext(t.Context(), "sh", "-c", Scripts(f, "alpha-1")[0].Script).Output()
	if err != nil {
		t.Fatal(err)
	}
	have, ok := listed(out)
	if !ok || keysOf(have) != "etc/host.json router/journal.jsonl run/a.json run/engine-p0.log" {
		t.Errorf("listed %v %v in\n%s", have, ok, out)
	}
	if !strings.Contains(string(out), "== uname -a\nLinux") && !strings.Contains(string(out), "== uname -a\nDarwin") {
		t.Errorf("no uname in\n%s", out)
	}
	f.Deploy.Hosts["alpha-1"] = fleet.Host{Root: root + "-not-there"}
	out, _ = exec.CommandContext(t.Context(), "sh", "-c", Scripts(f, "alpha-1")[0].Script).Output()
	if have, ok := listed(out); !ok || len(have) > 0 {
		t.Errorf("a folder that is not there lists %v %v", have, ok)
	}
}

func TestScriptsNameEveryCommand(t *testing.T) {
	f := testFleet()
	got := Scripts(f, "alpha-1")
	var tails []string
	for _, c := range got[1:] {
		tails = append(tails, c.Argv[len(c.Argv)-1])
		if c.Argv[0] != "tail" && c.Argv[0] != "sh" || c.Limit <= 0 || c.MaxOutput <= 0 {
			t.Errorf("command %+v", c)
		}
	}
	want := "/opt/narwhal/run/engine-p0.log /opt/narwhal/run/sidecar-p0.log /opt/narwhal/run/fabric.log /opt/narwhal/run/router.log /opt/narwhal/router/journal.jsonl"
	if strings.Join(tails, " ") != want || got[0].Limit <= 0 || got[0].MaxOutput <= 0 {
		t.Errorf("tails %v", tails)
	}
	if Scripts(fleet.Fleet{}, "x") != nil {
		t.Error("a fleet without hosts has commands")
	}
}
