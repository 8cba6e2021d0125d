package journal

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/narwhal-fleet/narwhal/runtime/model"
)

// BenchmarkPut measures what a row costs its request; the writer encodes beside it.
func BenchmarkPut(b *testing.B) {
	rows, _, err := func() ([]Row, Stats, error) {
		f, err := os.Open("testdata/reference-journal.jsonl")
		if err != nil {
			return nil, Stats{}, err
		}
		defer f.Close()
		return ReadRows(f)
	}()
	if err != nil {
		b.Fatal(err)
	}
	j, err := Open(filepath.Join(b.TempDir(), "j.jsonl"), "run", Meta{}, Options{Rows: 1 << 16, Bytes: 1 << 30, MaxBytes: 64 << 20, Keep: 1})
	if err != nil {
		b.Fatal(err)
	}
	reason := model.ReasonEngine
	row := rows[len(rows)-1]
	row.Reason = &reason
	b.ReportAllocs()
	for i := range b.N {
		if i%4096 == 0 { // let the writer catch up: a full queue would be a cheaper way out
			b.StopTimer()
			for j.Health().Queued > 0 {
				runtime.Gosched()
			}
			b.StartTimer()
		}
		j.Put(row)
	}
	b.StopTimer()
	h := j.Health()
	b.ReportMetric(float64(h.Dropped)/float64(b.N), "dropped/op")
	if err := j.Close(b.Context()); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkEncode measures the writer's side of a row.
func BenchmarkEncode(b *testing.B) {
	e := newEncoder("run")
	it := item{row: numbered(1)}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := e.line(&it); err != nil {
			b.Fatal(err)
		}
	}
}
