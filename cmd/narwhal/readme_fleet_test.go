package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/narwhal-fleet/narwhal/internal/freeport"
)

// TestFleetByHand runs every command of the README's section, on ports of its own: the engines and the router
// go on, the others end with 0.
func TestFleetByHand(t *testing.T) {
	p := plainFolder(t)
	_, section, found := strings.Cut(readPage(t, "README.md"), "### A fleet by hand\n")
	section, _, ends := strings.Cut(section, "\n### ")
	if !found || !ends {
		t.Fatal("README.md has no section A fleet by hand")
	}
	ports, err := freeport.Draw(5)
	if err != nil {
		t.Fatal(err)
	}
	for i, named := range []string{"8101", "8102", "8201", "8202", "8000"} {
		section = strings.ReplaceAll(section, named, fmt.Sprint(ports[i]))
	}
	section = strings.ReplaceAll(section, "narwhal serve -f fleet.json", fmt.Sprintf("narwhal serve -f fleet.json --port %d", ports[4])) // 8000 is its default
	if err := os.Symlink(p.bin, filepath.Join(p.dir, "narwhal")); err != nil {
		t.Fatal(err)
	}
	shell := func(line string) *exec.Cmd {
		cmd := execCommand("sh", p.dir, filepath.Join(p.dir, "state"), "-c", "exec "+line)
		cmd.Env = append(cmd.Env, "PATH="+p.dir+":"+os.Getenv("PATH"))
		return cmd
	}
	ran, stays := 0, map[string]string{"narwhal engine ": `"ready":true`, "narwhal serve ": "narwhal: serving tiny"}
	for _, block := range fenced.FindAllStringSubmatch(section, -1) {
		if block[1] == "json" {
			if err := os.WriteFile(p.fleet, []byte(block[2]), 0o600); err != nil {
				t.Fatal(err)
			}
			continue
		}
		for line := range strings.Lines(block[2]) {
			ran++
			if says := startsWithOne(stays, line); says != "" {
				cmd, out := shell(strings.TrimSpace(line)), &outputSoFar{}
				cmd.Stdout, cmd.Stderr = out, out
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
				await(t, line, func() bool { return strings.Contains(out.String(), says) })
				continue
			}
			r := finish(t, shell(strings.TrimSpace(line)))
			if r.code != 0 {
				t.Fatalf("%sexit %d\n%s%s", line, r.code, r.out, r.err)
			}
			if strings.HasPrefix(line, "curl ") {
				var answer struct{ Choices []struct{ Text string } }
				if json.Unmarshal([]byte(r.out), &answer) != nil || len(answer.Choices) != 1 || answer.Choices[0].Text == "" {
					t.Errorf("curl: %s", r.out)
				}
			}
		}
	}
	if ran < 7 {
		t.Errorf("only %d commands were run", ran)
	}
}

// startsWithOne is the value of the key that a line starts with, "" for none.
func startsWithOne(m map[string]string, line string) string {
	for k, v := range m {
		if strings.HasPrefix(line, k) {
			return v
		}
	}
	return ""
}
