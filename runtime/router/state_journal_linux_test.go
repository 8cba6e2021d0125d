package router

import (
	"bytes"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/narwhal-fleet/narwhal/runtime/journal"
)

// fullDisk is a small file system without room, and what makes room on it.
func fullDisk(t *testing.T) (journalPath string, free func()) {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=262144"); err != nil {
		t.Skipf("no tmpfs: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	ballast := filepath.Join(dir, "ballast")
	// As much as fits: the write that fails leaves no room.
	_ = os.WriteFile(ballast, bytes.Repeat([]byte("x"), 262144), 0o600)
	return filepath.Join(dir, "journal.jsonl"), func() {
		if err := os.Remove(ballast); err != nil {
			t.Error(err)
		}
	}
}

func (b *testbed) journalState() map[string]any {
	j, _ := b.state().Router["journal"].(map[string]any)
	return j
}

// load sends n requests over six connections and waits for their answers.
func (b *testbed) load(n int) (wait func()) {
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			for range n / 6 {
				if a := b.complete(body(false, 4)); a.status != 200 {
					b.t.Errorf("%d %s", a.status, a.body)
				}
			}
		})
	}
	return wg.Wait
}

// TestAFullDiskCostsNoRow starts a router on a full disk, under load, and makes room:
// requests are served meanwhile, the router says what is wrong, and every row comes.
func TestAFullDiskCostsNoRow(t *testing.T) {
	path, free := fullDisk(t)
	b := startBed(t, 1, 1, quick(), func(c *Config) { c.JournalPath = path })
	b.journal = path
	const n = 60
	b.load(n)()
	eventually(t, "the failure in the state", func() bool {
		j := b.journalState()
		return j["failing"] == true && j["error"] != "" && j["dropped"] == 0.0
	})
	if s, _ := b.scrape(""); s.series["narwhal_router_journal_failing{}"] != "1" || s.series["narwhal_router_journal_rows_dropped_total{}"] != "0" {
		t.Error("the metrics do not say that the journal cannot be written")
	}
	free()
	eventually(t, "recovery", func() bool { j := b.journalState(); return j["failing"] == false && j["queued"] == 0.0 })
	if rows := b.rows(); len(rows) != n {
		t.Errorf("%d rows of %d requests", len(rows), n)
	}
	told := false
	readEvents(t, path, func(e journal.Event) { told = told || e.Name == "journal_recovered" })
	if !told {
		t.Error("the journal does not tell of its failure")
	}
}

// TestALosslessJournalHoldsRequestsOnly fills the queue of a lossless journal on a full
// disk: requests wait, the router itself answers, and nothing is lost.
func TestALosslessJournalHoldsRequestsOnly(t *testing.T) {
	path, free := fullDisk(t)
	b := startBed(t, 1, 1, quick(), func(c *Config) {
		c.JournalPath, c.Journal = path, journal.Options{Rows: 4, Lossless: true}
	})
	b.journal = path
	const n = 30
	wait := b.load(n)
	eventually(t, "waiting requests", func() bool { return b.journalState()["waiting"] == 6.0 })
	if b.get("/health", nil) != 200 || b.get("/ready", nil) != 200 {
		t.Error("the router waits for its journal")
	}
	free()
	wait()
	if j := b.journalState(); j["dropped"] != 0.0 {
		t.Errorf("%v", j)
	}
	if rows := b.rows(); len(rows) != n {
		t.Errorf("%d rows of %d requests", len(rows), n)
	}
}
