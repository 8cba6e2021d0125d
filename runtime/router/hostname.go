package router

import (
	"net"
	"net/http"
	"strings"
)

// ownHost reports whether a request's Host names this router. On loopback only loopback
// names and the listen host do: a web page whose name was pointed at 127.0.0.1 must not
// reach a router without authentication through its reader's browser. A router on another
// address goes by names that it cannot know. A request without Host comes from no browser.
func ownHost(host, listen string, bound net.Addr) bool {
	if a, ok := bound.(*net.TCPAddr); !ok || !a.IP.IsLoopback() || host == "" {
		return true
	}
	name := hostName(host)
	if ip := net.ParseIP(name); ip != nil {
		return ip.IsLoopback()
	}
	return name == "localhost" || name == hostName(listen)
}

// hostName is the name of host or host:port, in lower case, without brackets and final dot.
func hostName(s string) string {
	if h, _, err := net.SplitHostPort(s); err == nil {
		s = h
	}
	return strings.TrimSuffix(strings.ToLower(strings.Trim(s, "[]")), ".")
}

func misdirected(w http.ResponseWriter) {
	f := failure{status: http.StatusMisdirectedRequest, typ: "invalid_request_error", hasParam: true, hasCode: true, code: ptr("foreign_host"),
		message: "this router listens on loopback and does not answer to the name in the Host header; use localhost or 127.0.0.1"}
	told(&f, false)
	writeBody(w, f.status, f.body())
}
