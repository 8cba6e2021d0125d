package record

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"
)

// TestManyIntentsAreBounded reads a log in which nothing ever ends.
func TestManyIntentsAreBounded(t *testing.T) {
	r := create(t)
	dir := r.Dir()
	log := mustRead(t, filepath.Join(dir, LogFile))
	seq, digest := r.Head()
	_ = r.Close()
	var buf bytes.Buffer
	buf.Write(log)
	for i := range MaxActions + 1 {
		ev, err := newEvent(KindIntent, "A", fmt.Sprintf("s%d", i), "h", Intent{Effect: EffectMutate}, start)
		if err != nil {
			t.Fatal(err)
		}
		seq++
		ev.Seq, ev.Prev = seq, digest
		line, err := encodeLine(ev)
		if err != nil {
			t.Fatal(err)
		}
		digest = digestOf(line)
		buf.Write(append(line, '\n'))
	}
	began := time.Now()
	whole := buf.Bytes()
	allowed := whole[:bytes.LastIndexByte(whole[:len(whole)-1], '\n')+1]
	mustWrite(t, filepath.Join(dir, LogFile), allowed)
	again, err := Open(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := again.Append(KindIntent, "A", "one more", "h", Intent{Effect: EffectMutate}); !errors.Is(err, ErrTooLarge) {
		t.Fatalf("one intent more: %v", err)
	}
	add(t, again, KindOutcome, "A", "s0", "h", Outcome{Status: StatusOK})
	_ = again.Close()
	mustWrite(t, filepath.Join(dir, LogFile), whole)
	var ce *ChainError
	if _, err := Read(dir); !errors.As(err, &ce) || ce.Line != MaxActions+2 {
		t.Fatalf("read: %v", err)
	}
	if _, err := Open(dir, Options{}); !errors.As(err, &ce) {
		t.Fatalf("open: %v", err)
	}
	if rep := mustVerify(t, dir); len(rep.Problems) != 1 || rep.Problems[0].Code != ProblemLimit {
		t.Fatalf("verify: %+v", rep.Problems)
	}
	t.Logf("%d intents, four readings: %v", MaxActions, time.Since(began))
}
