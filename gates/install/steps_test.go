package install

import (
	"path"
	"strings"
	"testing"

	"github.com/narwhal-fleet/narwhal/gates"
)

// TestStepsOfOneHost gives each host the binary of its machine, in every step.
func TestStepsOfOneHost(t *testing.T) {
	v := viewOf("me")
	v.Release = gates.Release{SHA256: digest("a"), Bytes: 1, Arch: "linux/amd64", More: []gates.Binary{{SHA256: digest("b"), Bytes: 2, Arch: "linux/arm64"}}}
	v.Facts = map[string]string{"host/h1/machine": "linux/amd64", "host/h2/machine": "linux/arm64"}
	for host, want := range map[string]string{"h1": digest("a"), "h2": digest("b"), "unseen": digest("a")} {
		other := strings.NewReplacer("a", "b", "b", "a").Replace(want)
		for _, s := range releaseSteps(v, host) {
			text := s.Script + strings.Join(s.Argv, " ") + strings.Join(s.Check, " ")
			if s.File != nil {
				text = s.File.Path + s.File.SHA256
				if s.File.Release && (s.File.SHA256 != want || path.Base(path.Dir(s.File.Path)) != want) {
					t.Errorf("%s: sends %+v", host, s.File)
				}
			}
			if strings.Contains(text, other) || !strings.Contains(text, want) && s.ID != "B/lock/"+host {
				t.Errorf("%s: step %s is about another binary", host, s.ID)
			}
		}
	}
}

// TestStepsHoldTheirOwner: the switch asks for the lock that the plan takes.
func TestStepsHoldTheirOwner(t *testing.T) {
	v := viewOf("o'wner")
	v.Release = gates.Release{SHA256: digest("a")}
	for _, s := range releaseSteps(v, "h1") {
		switch s.ID {
		case "B/lock/h1":
			if !strings.Contains(s.Script, `me='o'\''wner'`) {
				t.Errorf("lock: %.200s", s.Script)
			}
		case "B/switch/h1":
			if !strings.Contains(s.Argv[3], `"holder":"o'wner"`) || strings.Contains(s.Check[3], "holder") {
				t.Errorf("switch: %v", s.Argv)
			}
		}
	}
	if unlock := unlockStep(v, "h1", nil); !unlock.Last || !strings.Contains(unlock.Script, `'o'\''wner'`) {
		t.Errorf("unlock: %+v", unlock)
	}
}
