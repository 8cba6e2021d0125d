package gates

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/narwhal-fleet/narwhal/fleet/remote"
)

// TestLeaseIsTakenOnce has many operators find an expired lease at the same moment, in a
// real shell: one takes it, the others are told who did.
func TestLeaseIsTakenOnce(t *testing.T) {
	root := filepath.Join(t.TempDir(), "it's a root")
	if err := os.MkdirAll(root, 0o700); err != nil {
		t.Fatal(err)
	}
	ask := func(holder string) (int, string) {
		cmd := exec.Command("sh", "-c", fmt.Sprintf(leaseScript, remote.Quote(root), remote.Quote(holder), 60, remote.Quote("operator "+holder), exitHeld, 0))
		out, err := cmd.CombinedOutput()
		if err != nil && cmd.ProcessState == nil {
			t.Fatal(err)
		}
		return cmd.ProcessState.ExitCode(), string(out)
	}
	if code, out := ask("first"); code != 0 {
		t.Fatalf("the first: %d %s", code, out)
	}
	if code, out := ask("first"); code != 0 {
		t.Fatalf("its renewal: %d %s", code, out)
	}
	if code, out := ask("second"); code != exitHeld || !strings.Contains(out, "operator first") {
		t.Fatalf("while it is held: %d %s", code, out)
	}
	if err := os.WriteFile(filepath.Join(root, "lease"), []byte("first\n1\nlong ago\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	codes := make([]int, 8)
	for i := range codes {
		wg.Go(func() { codes[i], _ = ask("op" + strconv.Itoa(i)) })
	}
	wg.Wait()
	took := 0
	for _, c := range codes {
		switch c {
		case 0:
			took++
		case exitHeld:
		default:
			t.Errorf("exit %d", c)
		}
	}
	if took != 1 {
		t.Errorf("%d took the lease", took)
	}
	// A shell that was killed inside leaves its lock behind.
	if err := os.Mkdir(filepath.Join(root, ".lease.lock"), 0o700); err != nil {
		t.Fatal(err)
	}
	_ = os.Remove(filepath.Join(root, "lease"))
	if code, out := ask("after"); code != 0 {
		t.Errorf("after a killed shell: %d %s", code, out)
	}
	if left, _ := filepath.Glob(filepath.Join(root, ".lease*")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}
