package router

import (
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const removed = "(address removed)"

var (
	urls = regexp.MustCompile(`[a-zA-Z][a-zA-Z0-9+.-]*://[^\s"']+`)
	// hostWord is a host that a text names as one.
	hostWord = regexp.MustCompile(`(?i)\b(host(?:name)?\s*=\s*['"]?)[^\s'",()]+`)
	// pieces are what may be an address by itself.
	pieces = regexp.MustCompile(`[0-9A-Za-z_.:%\[\]-]+`)
)

// private are the last labels of names that only a site knows.
var private = []string{"corp", "home", "internal", "intranet", "lan", "local", "localdomain", "svc"}

// scrub removes addresses from an engine's message before a client sees it: URLs, IP addresses, hosts
// with a port, names of a site's own domains.
func scrub(s string) string {
	s = urls.ReplaceAllString(s, removed)
	s = hostWord.ReplaceAllString(s, "${1}"+removed)
	return pieces.ReplaceAllStringFunc(s, func(word string) string {
		end := len(strings.TrimRight(word, ".:-"))
		if word[:end] == "" || !isAddress(word[:end]) {
			if end == len(word) || !isAddress(word) { // an IPv6 address may end in colons
				return word
			}
			end = len(word)
		}
		return removed + word[end:]
	})
}

func isAddress(word string) bool {
	if a, err := netip.ParseAddr(strings.Trim(word, "[]")); err == nil {
		return a.Is4() || word != "::"
	}
	if host, port, err := net.SplitHostPort(word); err == nil {
		n, err := strconv.Atoi(port)
		return err == nil && n > 0 && n < 1<<16 && isHost(host, n)
	}
	labels := strings.Split(strings.ToLower(word), ".")
	return word == "localhost" || len(labels) > 1 && slices.Contains(private, labels[len(labels)-1])
}

// isHost tells the name of a host before a port from other words before a number: it has a digit
// or labels, as max_tokens:4096 and 1.5:2 have not.
func isHost(host string, port int) bool {
	if _, err := netip.ParseAddr(host); err == nil || host == "localhost" {
		return true
	}
	letters := strings.ContainsFunc(host, func(r rune) bool { return r >= 'A' && r != '_' })
	if !letters {
		return strings.Contains(host, ".") && port >= 1024
	}
	return strings.ContainsAny(host, ".0123456789")
}

// hide removes the addresses of the fleet's own engines, which may be names without a digit.
func (s *settings) hide(text string) string {
	for _, e := range s.Fleet.Engines {
		if u, err := url.Parse(e.URL); err == nil && u.Host != "" {
			text = strings.ReplaceAll(text, u.Host, removed)
		}
	}
	return text
}
