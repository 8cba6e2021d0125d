// Package answer reads what a probe of a host printed: sections "== name" with lines below.
//
// It promises that every line is printable, short and of a bounded number, whatever the
// bytes were, and that a cut answer is told from a whole one. It refuses to guess: an
// answer without its end mark, or with a section twice, is an error.
package answer

import (
	"bufio"
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limits of one answer.
const (
	MaxLines = 20000
	MaxLine  = 1 << 20 // bytes
)

// Sections are the lines of an answer by section.
type Sections map[string][]string

// Read splits an answer. Lines of the sections named raw stay as they are: they hold paths.
func Read(b []byte, raw ...string) (Sections, error) {
	out := Sections{}
	name, lines := "", 0
	sc := bufio.NewScanner(bytes.NewReader(b))
	sc.Buffer(nil, MaxLine)
	for sc.Scan() {
		if lines++; lines > MaxLines {
			return nil, fmt.Errorf("read the probe's answer: more than %d lines", MaxLines)
		}
		n, head := strings.CutPrefix(sc.Text(), "== ")
		switch {
		case head:
			if _, twice := out[n]; twice {
				return nil, fmt.Errorf("read the probe's answer: section %.40q stands twice", n)
			}
			name = n
			out[name] = []string{}
		case name == "":
		case contains(raw, name):
			out[name] = append(out[name], sc.Text())
		default:
			out[name] = append(out[name], strings.TrimSpace(Printable(sc.Text())))
		}
	}
	if sc.Err() != nil {
		return nil, fmt.Errorf("read the probe's answer: %w", sc.Err())
	}
	if name != "end" {
		return nil, fmt.Errorf("read the probe's answer: it was cut off")
	}
	return out, nil
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

// At returns line i of a section, "" when there is none.
func (s Sections) At(name string, i int) string {
	if l := s[name]; i < len(l) {
		return l[i]
	}
	return ""
}

// Printable drops terminal control sequences whole, then what else could steer a terminal.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) && r != '\t' {
			return -1
		}
		return r
	}, withoutEscapes(s))
}

// withoutEscapes cuts "ESC [ parameters letter" and the two-byte escapes. What is cut off
// before its letter is dropped to the end.
func withoutEscapes(s string) string {
	if strings.IndexByte(s, 0x1b) < 0 {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != 0x1b {
			b.WriteByte(s[i])
			continue
		}
		if i++; i >= len(s) || s[i] != '[' {
			continue
		}
		for i++; i < len(s) && (s[i] < 0x40 || s[i] > 0x7e); i++ {
		}
	}
	return b.String()
}

// Exit reads the exit status that a probe's helper put at the end of a section as
// "-- status N", and returns the lines before it. Without one the status is -1.
func Exit(lines []string) (before []string, status int) {
	if n := len(lines); n > 0 {
		if s, ok := strings.CutPrefix(lines[n-1], "-- status "); ok {
			if code, err := strconv.Atoi(s); err == nil && code >= 0 && code < 256 {
				return lines[:n-1], code
			}
		}
	}
	return lines, -1
}
