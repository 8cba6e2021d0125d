package journal

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const writerEnv = "JOURNAL_TEST_WRITES"

// writeUntilKilled writes rows without end and tells how many are in files.
func writeUntilKilled(path string) {
	j, err := Open(path, "child", Meta{}, Options{MaxBytes: 200_000})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	told := uint64(0)
	for i := 0; ; {
		if j.Put(numbered(i)) {
			i++
		}
		if w := j.Written(); w >= told+200 {
			told = w
			fmt.Println(w)
		}
	}
}

func TestAKilledWriterLosesNothingItWrote(t *testing.T) {
	path := filepath.Join(t.TempDir(), "j.jsonl")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	child := exec.CommandContext(limited(t), self)
	child.Env = append(os.Environ(), writerEnv+"="+path)
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	in, wrote := bufio.NewReader(out), 0
	for wrote < 3000 {
		line, err := in.ReadString('\n')
		if err != nil {
			t.Fatalf("child: %q, %v", line, err)
		}
		if wrote, err = strconv.Atoi(strings.TrimSpace(line)); err != nil {
			t.Fatal(line)
		}
	}
	_ = child.Process.Kill()
	_ = child.Wait()
	rows, metas, st := rowsAt(t, path)
	if st.Bad > 0 || st.Lines < wrote || len(metas) == 0 {
		t.Fatalf("%d rows and %d metas of at least %d lines, %+v", len(rows), len(metas), wrote, st)
	}
	inOrder(t, rows, len(rows))
	j, err := Open(path, "next", Meta{})
	if err != nil {
		t.Fatal(err)
	}
	j.Put(numbered(len(rows)))
	if err := j.Close(limited(t)); err != nil {
		t.Fatal(err)
	}
	after, _, st := rowsAt(t, path)
	if st.Bad > 0 || st.Torn {
		t.Errorf("%+v", st)
	}
	inOrder(t, after, len(rows)+1)
}
