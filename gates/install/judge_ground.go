package install

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/record"
)

// fewInodes is what a release, its role files and its logs need.
const fewInodes = 64

// groundFaults are what an answer of the ground probe says against sending the release. It
// needs nothing but the answer, since it decides about the next step too.
func groundFaults(data []byte) []record.Finding {
	a, whole := readAnswer(data)
	if !whole {
		return []record.Finding{cut("look at the host's root")}
	}
	g := ground{answer: a}
	g.machine()
	g.space()
	g.mount()
	g.owners()
	return g.out
}

func cut(what string) record.Finding {
	return record.Finding{Code: "install-answer-cut", Want: "a whole answer", Got: "a part of one, or other words",
		Message: "the answer to " + what + " is not whole", Hint: "log in as the fleet's user: a profile that prints, or a shell that is none, is in the way; then narwhal gate run --again B"}
}

type ground struct {
	answer
	out []record.Finding
}

func (g *ground) add(code, want, got, hint string) {
	got = fmt.Sprintf("%.200s", printable(got))
	g.out = append(g.out, record.Finding{Code: code, Want: want, Got: got, Message: "want " + want + ", found " + got, Hint: hint})
}

// printable makes one word of each run of what a terminal would obey.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
}

func (g *ground) machine() {
	system, machine, _ := strings.Cut(g.one("machine"), " ")
	if want, got := g.one("want"), gates.Arch(system, machine); want != "" && got != want {
		g.add("release-architecture", "a host of "+want, got, "name the binary for that machine in deploy.release.binaries, then narwhal gate run --again A")
	}
	if state, loader, _ := strings.Cut(g.one("loader"), " "); state == "missing" {
		g.add("release-not-static", "a static release, or its loader "+printable(loader)+" on the host", "no such loader", "build with CGO_ENABLED=0, as make build does, or set deploy.release.binary")
	} else if state == "there" {
		g.add("release-not-static", "a static release", "one that needs the host's "+loader, "build with CGO_ENABLED=0, as make build does: the host's C library may be too old for it")
		g.out[len(g.out)-1].Note = true
	}
}

// space counts what is there of the release as sent.
func (g *ground) space() {
	need := number(g.one("bytes"))
	if number(g.one("there")) == need {
		need = 0
	}
	most := int64(0)
	for _, p := range g.answer["part"] {
		most = max(most, min(number(p), need))
	}
	need -= most
	if free := number(g.one("free")); free >= 0 && free < (need+1023)/1024 {
		g.add("release-space", fleet.Size(need).String()+" free for the release", fleet.Size(free*1024).String(), "free space below the root, or set another root; deploy.release.keep bounds how many releases stay")
	}
	total, free, _ := strings.Cut(g.one("inodes"), " ")
	if n := number(free); number(total) > 0 && n >= 0 && n < fewInodes {
		g.add("release-inodes", fmt.Sprintf("%d free inodes", fewInodes), strconv.FormatInt(n, 10), "remove small files from that file system, or set another root")
	}
}

// number is -1 of what is none.
func number(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 || n > 1<<53 {
		return -1
	}
	return n
}

func (g *ground) mount() {
	options, at, _ := strings.Cut(g.one("mount"), " ")
	for _, o := range strings.Split(options, ",") {
		switch o {
		case "noexec":
			g.add("root-noexec", "a file system that lets programs run", at+" is mounted noexec", "set a root on another file system, or remount that one with exec")
		case "ro":
			g.add("root-read-only", "a file system that can be written", at+" is mounted read-only", "set a root on another file system, or remount that one; the host's dmesg says whether a disk fault made it so")
		}
	}
	if at, ok := g.answer["closed"]; ok {
		g.add("root-closed", "a folder that the fleet's user may enter", at[0], "give the user the right to search that folder, or set another root")
	}
}

// owners refuses folders that somebody else could exchange under the fleet.
func (g *ground) owners() {
	user := strings.Fields(g.one("user"))
	if len(user) < 2 {
		g.out = append(g.out, cut("who the host's user is"))
		return
	}
	private := len(user) == 4 && user[2] == user[3] // a group of the user's own
	for _, word := range []string{"folder", "above"} {
		for _, l := range g.answer[word] {
			f := strings.SplitN(l, " ", 4)
			if len(f) < 4 {
				continue
			}
			mode, err := strconv.ParseInt(f[2], 8, 32)
			if err != nil {
				continue // a host without stat
			}
			if word == "folder" && f[0] != user[0] && f[0] != "0" {
				g.add("root-owner", "a folder of user "+user[0]+" or of root", f[3]+" of user "+f[0], "give it to the fleet's user with chown, or set another root")
			}
			others := mode&0o002 != 0 && (word == "folder" || mode&0o1000 == 0)
			group := word == "folder" && mode&0o020 != 0 && !(private && f[1] == user[1])
			if others || group {
				g.add("root-writable-by-others", "folders that only their owner writes", fmt.Sprintf("%s with mode %04o", f[3], mode), "chmod go-w on it: whoever writes there could exchange the release")
			}
		}
	}
}
