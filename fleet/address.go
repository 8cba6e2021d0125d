package fleet

import (
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"unicode"
)

// AddressUser is the fault of an address that holds credentials.
const AddressUser = "holds a user or password"

// AddressKey is the same for two spellings of one address: case of scheme and host, the port
// that the scheme implies, slashes at the end.
func AddressKey(s string) string {
	u, err := url.Parse(s)
	if err != nil {
		return s
	}
	scheme := strings.ToLower(u.Scheme)
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[scheme]
	}
	return scheme + "://" + net.JoinHostPort(strings.ToLower(u.Hostname()), port) + strings.TrimRight(u.EscapedPath(), "/")
}

// AddressFault says why no request can be sent to the address of an engine or a sidecar, ""
// when one can. A path is allowed and goes before that of every request. What it says holds
// nothing of the address but its scheme and port.
func AddressFault(s string) string {
	if s == "" {
		return "is empty"
	}
	if strings.ContainsFunc(s, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }) {
		return "holds a space or control character"
	}
	u, err := url.Parse(s)
	if err != nil {
		return "is no URL"
	}
	switch {
	case !strings.Contains(s, "://"):
		return "has no scheme"
	case u.Scheme != "http" && u.Scheme != "https":
		return fmt.Sprintf("has the scheme %q, want http or https", u.Scheme)
	case u.Hostname() == "":
		return "has no host"
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return "holds a query or fragment"
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return fmt.Sprintf("has the port %q, want 1 to 65535", port)
		}
	}
	if u.User != nil {
		return AddressUser
	}
	return ""
}
