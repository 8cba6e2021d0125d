package bundle

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/quick"

	"github.com/narwhal-fleet/narwhal/fleet"
)

// The end of a journal is that of all its files together, in the order of their rows.
func TestJournalEnd(t *testing.T) {
	dir := t.TempDir()
	whole := ""
	for _, name := range []string{"journal-20260101T000001.000000Z.jsonl", "journal-20260101T000002.000000Z.jsonl", "journal-20260101T000010.000000Z.jsonl", "journal.jsonl"} {
		body := strings.Repeat("{\"of\":\""+name+"\"}\n", 3)
		whole += body
		if err := os.WriteFile(filepath.Join(dir, name), []byte(body), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"journal-$(touch x)Z.jsonl", "journal-copy.jsonl", "other-20260101T000001.000000Z.jsonl"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("foreign\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	end := func(n uint8) bool {
		most := int(n) + 1
		c := tailOf("", item{file: filepath.Join(dir, "journal.jsonl"), lines: true, limit: int64(most)})
		out, err := exec.Command(c.Argv[0], c.Argv[1:]...).Output()
		return err == nil && string(out) == whole[max(0, len(whole)-most):]
	}
	if err := quick.Check(end, &quick.Config{MaxCount: 20}); err != nil {
		t.Error(err)
	}
	if c := tailOf(dir, item{file: "absent.jsonl", lines: true, limit: 1}); exec.Command(c.Argv[0], c.Argv[1:]...).Run() == nil {
		t.Error("an absent journal has an end")
	}
}

// A journal that went on in other files is collected over all of them; so is the standby's.
func TestCollectsEndedJournals(t *testing.T) {
	w := healthy(t)
	w.fleet.Deploy.Router.Standby, w.fleet.Deploy.Router.Lease.Path = &fleet.Standby{Host: "alpha-2", Listen: "127.0.0.1:8001"}, "/srv/lease.json"
	for host, name := range map[string]string{"alpha-1": "router", "alpha-2": "standby"} {
		list := strings.Replace(string(w.runs[host+":script"].data), "== uname", name+"/journal.jsonl\n"+name+"/journal-20260101T000001.000000Z.jsonl\n== uname", 1)
		w.runs[host+":script"] = answer{data: []byte(list)}
		w.runs[host+":sh "+w.fleet.Deploy.Hosts[host].Root+"/"+name+"/journal.jsonl"] = answer{data: []byte("{\"rid\":\"early\"}\n{\"rid\":\"late\"}\n{\"unfin")}
	}
	for i, p := range []string{"/health", "/ready", "/narwhal/state", "/metrics"} {
		w.urls["alpha-2:http://127.0.0.1:8001"+p] = answer{data: []byte(strconv.Itoa(i))}
	}
	_, archive := collect(t, w.source())
	r := verified(t, archive)
	defer r.Close()
	for _, path := range []string{"router/journal.jsonl", "router/standby/journal.jsonl"} {
		if got := text(t, r, path); got != "{\"rid\":\"early\"}\n{\"rid\":\"late\"}\n" {
			t.Errorf("%s: %q", path, got)
		}
	}
}
