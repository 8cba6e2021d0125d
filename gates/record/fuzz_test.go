package record

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

func FuzzDecodeLine(f *testing.F) {
	ev, err := newEvent(KindNote, "A", "s", "h", Note{Text: "x"}, start)
	if err != nil {
		f.Fatal(err)
	}
	ev.Seq, ev.Prev = 2, zeroDigest
	line, err := encodeLine(ev)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(line)
	f.Add([]byte(`{"seq":1}`))
	f.Add([]byte(``))
	f.Fuzz(func(t *testing.T, b []byte) {
		ev, err := decodeLine(b)
		if err != nil {
			return
		}
		again, err := encodeLine(ev)
		if err != nil || !bytes.Equal(again, b) {
			t.Fatalf("accepted %q, which is written as %q (%v)", b, again, err)
		}
	})
}

// FuzzVerify lets the log be anything. Sums are made to fit, so that the fuzzer
// gets past them to bodies and chains.
func FuzzVerify(f *testing.F) {
	for kind := range bodies {
		f.Add([]byte(`{"seq":1,"time":"2026-11-29T18:51:02Z","kind":"`+string(kind)+`","prev":"`+zeroDigest+`","body":{"ref":{"sha256":"..","media":"","bytes":1}}}`), true)
	}
	f.Add([]byte("{\n\n\x00"), false)
	f.Fuzz(func(t *testing.T, log []byte, fit bool) {
		if fit {
			var out []byte
			for line := range bytes.SplitSeq(log, []byte("\n")) {
				if len(line) > 1 {
					head := line[:len(line)-1]
					line = append(bytes.Clone(head), sumMark+digestOf(head)+`"}`...)
				}
				out = append(append(out, line...), '\n')
			}
			log = out
		}
		dir := t.TempDir()
		mustWrite(t, filepath.Join(dir, LogFile), log)
		if err := os.Mkdir(filepath.Join(dir, ObjectDir), 0o700); err != nil {
			t.Fatal(err)
		}
		rep, err := Verify(dir)
		if err != nil || len(rep.Problems) == 0 {
			// A fuzzer cannot make the objects that a first event needs.
			t.Fatalf("verified %q: %v", log, err)
		}
		if _, err := Read(dir); err == nil && rep.Events == 0 {
			t.Fatal("read a record in which verify sees no event")
		}
	})
}
