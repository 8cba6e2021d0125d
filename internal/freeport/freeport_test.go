package freeport

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// TestDrawnOnce draws as those do at once who listen later: no port comes twice.
func TestDrawnOnce(t *testing.T) {
	var mu sync.Mutex
	seen := map[int]bool{}
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			ports, err := Draw(60)
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			for _, p := range ports {
				if p < first || p >= first+size*blocks || seen[p] {
					t.Errorf("port %d, drawn before: %v", p, seen[p])
				}
				seen[p] = true
			}
		})
	}
	all.Wait()
}

// TestProcessesDrawOthers: what one process has drawn and does not listen on, no other one draws.
func TestProcessesDrawOthers(t *testing.T) {
	if os.Getenv("DRAWS") != "" {
		ports, err := Draw(400)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range ports {
			os.Stdout.WriteString("port :" + strconv.Itoa(p) + "\n")
		}
		return
	}
	mine, err := Draw(400)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		cmd := exec.Command(os.Args[0], "-test.run=^TestProcessesDrawOthers$")
		cmd.Env = append(os.Environ(), "DRAWS=1")
		out, err := cmd.CombinedOutput()
		if err != nil || strings.Count(string(out), "port :") != 400 {
			t.Fatalf("%v %s", err, out)
		}
		for _, p := range mine {
			if strings.Contains(string(out), "port :"+strconv.Itoa(p)+"\n") {
				t.Errorf("port %d is drawn by two processes", p)
			}
		}
	}
}
