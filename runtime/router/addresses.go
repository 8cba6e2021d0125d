package router

import (
	"net/url"
	"regexp"
	"strings"
)

// addresses are URLs, IPv4 and bracketed IPv6 addresses with or without a port, and names with a port.
var addresses = regexp.MustCompile(`[a-zA-Z][a-zA-Z0-9+.-]*://[^\s"']+` +
	`|\b\d{1,3}(\.\d{1,3}){3}(:\d{1,5})?\b` +
	`|\[[0-9a-fA-F]*:[0-9a-fA-F]*:[0-9a-fA-F:.]*(%[a-zA-Z0-9]+)?\](:\d{1,5})?` +
	`|\b(localhost|[a-zA-Z0-9_-]+(\.[a-zA-Z0-9_-]+)*\.[a-zA-Z][a-zA-Z0-9_-]*):\d{1,5}\b`)

const removed = "(address removed)"

// scrub removes addresses from an engine's message before a client sees it.
func scrub(s string) string { return addresses.ReplaceAllString(s, removed) }

// hide removes the addresses of the fleet's own engines, which may be names without a dot.
func (s *settings) hide(text string) string {
	for _, e := range s.Fleet.Engines {
		if u, err := url.Parse(e.URL); err == nil && u.Host != "" {
			text = strings.ReplaceAll(text, u.Host, removed)
		}
	}
	return text
}
