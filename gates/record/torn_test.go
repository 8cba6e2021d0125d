package record

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// copyRun copies a record's folder and returns the copy.
func copyRun(t testing.TB, from string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "copy")
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	return to
}

func TestTornLastLineIsCutOffKnowingly(t *testing.T) {
	r := create(t)
	fill(t, r)
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	log := mustRead(t, filepath.Join(r.Dir(), LogFile))
	whole := bytes.LastIndexByte(log[:len(log)-1], '\n') + 1
	tails := [][]byte{[]byte("\x00\x00\x00"), []byte("{\n"), append(bytes.Clone(log[whole:len(log)-1]), 'x')}
	for n := whole + 1; n < len(log); n += 37 {
		tails = append(tails, log[whole:n])
	}
	tails = append(tails, log[whole:len(log)-1]) // only the newline is missing
	dir := copyRun(t, r.Dir())
	for _, tail := range tails {
		mustWrite(t, filepath.Join(dir, LogFile), append(bytes.Clone(log[:whole]), tail...))
		again, err := Open(dir, Options{Now: ticking()})
		if err != nil {
			t.Fatalf("tail of %d bytes: %v", len(tail), err)
		}
		repairs := again.State().Repairs
		if len(repairs) != 1 || repairs[0].DroppedBytes != int64(len(tail)) {
			t.Fatalf("tail of %d bytes: repairs %+v", len(tail), repairs)
		}
		if saved := mustRead(t, filepath.Join(dir, repairs[0].File)); !bytes.Equal(saved, tail) {
			t.Fatalf("saved %q; want %q", saved, tail)
		}
		if err := again.Close(); err != nil {
			t.Fatal(err)
		}
		// The seal, whose event may be the torn one, is the only file the log cannot explain.
		for _, p := range mustVerify(t, dir).Problems {
			if p.File != "seals/A.sigstore.json" {
				t.Fatalf("after the repair: %+v", p)
			}
		}
		if err := os.Remove(filepath.Join(dir, repairs[0].File)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRepairThatWasItselfInterrupted(t *testing.T) {
	r := create(t)
	add(t, r, KindNote, "", "", "", Note{Text: "one"})
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	log := mustRead(t, filepath.Join(r.Dir(), LogFile))
	cases := map[string]struct{ saved, tail, want string }{
		"killed before the cut":               {`{"seq":3`, `{"seq":3`, `{"seq":3`},
		"killed after the cut":                {`{"seq":3`, ``, `{"seq":3`},
		"killed while the event was written":  {`{"seq":3`, `{"seq":3,"time"`, `{"seq":3{"seq":3,"time"`},
		"killed before anything was saved":    {"", `{"seq":3`, `{"seq":3`},
		"killed after the cut, empty so far.": {"", "", ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			dir := copyRun(t, r.Dir())
			mustWrite(t, filepath.Join(dir, LogFile), append(bytes.Clone(log), c.tail...))
			if c.saved != "" {
				mustWrite(t, filepath.Join(dir, "torn-3.bin"), []byte(c.saved))
			}
			again, err := Open(dir, Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer again.Close()
			if c.want == "" {
				if n := len(again.State().Repairs); n != 0 {
					t.Fatalf("%d repairs of a whole log", n)
				}
			} else if got := mustRead(t, filepath.Join(dir, "torn-3.bin")); string(got) != c.want {
				t.Fatalf("saved %q; want %q", got, c.want)
			}
			if rep := mustVerify(t, dir); len(rep.Problems) > 0 {
				t.Fatalf("verify: %+v", rep.Problems)
			}
		})
	}
}

func TestBrokenChainIsRefusedWhereItBreaks(t *testing.T) {
	r := create(t)
	fill(t, r)
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	lines := bytes.SplitAfter(mustRead(t, filepath.Join(r.Dir(), LogFile)), []byte("\n"))
	lines = lines[:len(lines)-1]
	join := func(l ...[]byte) []byte { return bytes.Join(l, nil) }
	flip := func(n int) [][]byte {
		out := append([][]byte(nil), lines...)
		out[n] = bytes.Replace(out[n], []byte(`"body":{`), []byte(`"body" :{`), 1)
		return out
	}
	forge := func(n int) [][]byte { // another time, and a sum that fits it
		out := append([][]byte(nil), lines...)
		head := bytes.Replace(out[n][:len(out[n])-1-sumTail], []byte("2026-"), []byte("2025-"), 1)
		out[n] = append(head, sumMark+digestOf(head)+"\"}\n"...)
		return out
	}
	cases := map[string]struct {
		log  []byte
		line int
	}{
		"line forged with its sum": {join(forge(2)...), 4},
		"line changed":             {join(flip(2)...), 3},
		"last line changed":        {join(flip(len(lines) - 1)...), len(lines)},
		"line removed":             {join(append(append([][]byte(nil), lines[:3]...), lines[4:]...)...), 4},
		"line repeated":            {join(append(append([][]byte(nil), lines[:3]...), lines[2:]...)...), 4},
		"lines swapped":            {join(lines[0], lines[2], lines[1]), 2},
		"first line removed":       {join(lines[1:]...), 1},
		"empty line inside":        {join(lines[0], []byte("\n"), lines[1]), 2},
		"long line inside":         {join(lines[0], bytes.Repeat([]byte("x"), 3*MaxLine), []byte("\n"), lines[1]), 2},
		"other record's tail":      {join(lines[0], lines[0]), 2},
		"last line ended, forged":  {join(lines[0], []byte(`{"seq":2}`+"\n")), 2},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			dir := copyRun(t, r.Dir())
			mustWrite(t, filepath.Join(dir, LogFile), c.log)
			var ce *ChainError
			if _, err := Open(dir, Options{}); !errors.As(err, &ce) || ce.Line != c.line {
				t.Fatalf("open: %v; want line %d", err, c.line)
			}
			if _, err := Read(dir); !errors.As(err, &ce) || ce.Line != c.line {
				t.Fatalf("read: %v; want line %d", err, c.line)
			}
			if got := mustRead(t, filepath.Join(dir, LogFile)); !bytes.Equal(got, c.log) {
				t.Fatal("a refused log was changed")
			}
			rep := mustVerify(t, dir)
			if len(rep.Problems) == 0 || rep.Problems[0].Line != c.line {
				t.Fatalf("verify: %+v; want line %d first", rep.Problems, c.line)
			}
		})
	}
}

// TestMain serves as the process that kills itself.
func TestMain(m *testing.M) {
	if dir := os.Getenv("RECORD_TEST_CRASH_DIR"); dir != "" {
		after, _ := strconv.Atoi(os.Getenv("RECORD_TEST_CRASH_AFTER"))
		os.Exit(crashing(dir, after))
	}
	if path := os.Getenv("RECORD_TEST_LOCK"); path != "" {
		os.Exit(holding(path))
	}
	os.Exit(m.Run())
}

func crashing(dir string, after int) int {
	opt := Options{CrashAfter: after}
	r, err := Create(dir, testHeader(), opt)
	if err != nil {
		r, err = Open(dir, opt)
	}
	if err != nil {
		return 3
	}
	for _, step := range []string{"s1", "s2"} {
		_, e1 := r.Append(KindFacts, "", "", "", Facts{})
		_, e2 := r.Append(KindIntent, "A", step, "h1", Intent{Effect: EffectMutate})
		_, e3 := r.Append(KindOutcome, "A", step, "h1", Outcome{Status: StatusOK})
		seq, digest := r.Head()
		_, e4 := r.Seal("A", seq, digest, []byte(`{"of":"`+step+digest+`"}`))
		if err := errors.Join(e1, e2, e3, e4); err != nil {
			return 4
		}
	}
	return 0
}

func TestKilledAfterEachEvent(t *testing.T) {
	// events of a whole run: created, then twice (facts) intent, outcome, seal
	unknown := map[int]int{2: 1, 5: 1}
	for after := 1; after <= 7; after++ {
		t.Run(strconv.Itoa(after), func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "run")
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), "RECORD_TEST_CRASH_DIR="+dir, "RECORD_TEST_CRASH_AFTER="+strconv.Itoa(after))
			err := cmd.Run()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
				t.Fatalf("process ended with %v; want SIGKILL", err)
			}
			r, err := Open(dir, Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			st := r.State()
			if got := st.Seq - int64(strings.Count(string(mustRead(t, filepath.Join(dir, LogFile))), `"kind":"facts"`)); got != int64(after) {
				t.Fatalf("%d counted events on disk; want %d", got, after)
			}
			if len(st.Unknown) != unknown[after] {
				t.Fatalf("unknown %+v; want %d", st.Unknown, unknown[after])
			}
			if rep := mustVerify(t, dir); len(rep.Problems) > 0 {
				t.Fatalf("verify after resume: %+v", rep.Problems)
			}
		})
	}
}
