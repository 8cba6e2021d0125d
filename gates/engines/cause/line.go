package cause

import (
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Levels of a line.
const (
	plain   = iota // an error, or without a level
	warning        // the program goes on
	chatter        // information: arguments and file names, which may hold any words
)

// marks stand before a message: the process, the time and the place that write it.
var marks = regexp.MustCompile(`^\s*(` +
	`\((APIServer|EngineCore|Worker|RayWorker|Ray|VllmWorker|ApiServer|DPCoordinator)[^)]{0,120}\)` + // vLLM's processes
	`|\[rank\d+\]:` + // torchrun
	`|\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[^\] ]{0,16}( (UTC|[A-Z]{2,3}\d+))*\]?` + // times, and SGLang's ranks
	`|\d\d-\d\d \d\d:\d\d:\d\d` +
	`|\[[\w/.-]{1,80}\.(py|cc|cpp|cu):\d+\]|[\w/.-]{1,80}\.py:\d+\]` + // vLLM's places
	`|\[?[IWEF](\d{4}( \d\d:\d\d:\d\d[.\d]*)?)?( +\d+)? [\w/.-]{1,80}:\d+\]` + // PyTorch's and glog's levels and places
	`|(INFO|DEBUG|WARNING|WARN|ERROR|CRITICAL|FATAL)\b:?` +
	`|E {3,}` + // pytest
	`)\s*`)

var levels = map[string]int{"INFO": chatter, "DEBUG": chatter, "WARNING": warning, "WARN": warning, "I": chatter, "W": warning}

// letters are levels of one letter, with a date or without.
var letters = regexp.MustCompile(`^\[?([IWEF])[\d ].*\]$`)

// goesOn are words of lines after which the program tries something else.
var goesOn = []string{"retrying", "ignore import error", "falling back", "fall back to", "will be ignored", "skipping"}

// survives reports whether a line, in lower case, says that its program goes on.
func survives(low string) bool {
	return slices.ContainsFunc(goesOn, func(s string) bool { return strings.Contains(low, s) })
}

// strip takes control sequences and marks off and returns the message and its level.
func strip(raw string) (string, int) {
	s, level := clean(raw), plain
	for range 12 { // more marks than any engine writes
		m := marks.FindStringSubmatchIndex(s)
		if m == nil {
			break
		}
		word := strings.TrimRight(strings.TrimSpace(s[m[2]:m[3]]), ":")
		if m := letters.FindStringSubmatch(word); m != nil {
			word = m[1]
		}
		if l, ok := levels[word]; ok && level == plain {
			level = l
		}
		s = s[m[1]:]
	}
	return s, level
}

// escapes are terminal sequences: CSI, OSC, and two-byte ones.
var escapes = regexp.MustCompile(`\x1b(\[[0-9;:?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)?|[@-Z\\^_])`)

// clean leaves printable text.
func clean(s string) string {
	s = escapes.ReplaceAllString(s, "")
	if !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, "?")
	}
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		switch {
		case r == '\t':
			return ' '
		case unicode.IsControl(r), unicode.Is(unicode.Cf, r):
			return -1
		}
		return r
	}, s))
}

// quotesSource reports a line of a traceback that shows source text instead of a message.
func quotesSource(s string) bool {
	for _, p := range []string{"raise ", "File \"", "assert ", "logger.", "return ", "\"", "f\"", "'", "^", "#", "|"} {
		if strings.HasPrefix(s, p) {
			return true
		}
	}
	return false
}

// credentials are forms in which tools print secrets.
var credentials = []*regexp.Regexp{
	regexp.MustCompile(`\b(hf|sk|ghp|gho|xox[abp]|glpat|nvapi)[-_][A-Za-z0-9_-]{6,}`),
	regexp.MustCompile(`(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{4,}`),
	regexp.MustCompile(`(?i)((?:api[-_]?key|token|passw(?:or)?d|secret|credential)[\w-]{0,20}["']?\s*[=: ]\s*["']?)[^\s"',}\]]{4,}`),
	regexp.MustCompile(`(?i)(://)[^/\s@]{1,200}@`),
	regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9._-]+`),
}

const masked = "•••"

// show makes a line fit for a finding.
func show(raw string) string {
	s := clean(raw)
	for i, c := range credentials {
		switch i {
		case 2:
			s = c.ReplaceAllString(s, "${1}"+masked)
		case 3:
			s = c.ReplaceAllString(s, "${1}"+masked+"@")
		default:
			s = c.ReplaceAllString(s, masked)
		}
	}
	if len(s) <= maxShown {
		return s
	}
	cut := maxShown
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "…"
}
