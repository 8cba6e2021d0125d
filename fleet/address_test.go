package fleet

import (
	"strings"
	"testing"
)

func TestAddressFault(t *testing.T) {
	for s, want := range map[string]string{
		"http://10.0.0.1:8100": "", "https://engine.example/prefix/": "", "http://[2001:db8::1]:8100": "", "http://h": "",
		"": "is empty", "http://h:8100 ": "space", "http://h\x1b[2J:1": "control", "http://h:x": "no URL", "h:8100": "no scheme", "10.0.0.1": "no scheme",
		"ftp://h": `scheme "ftp"`, "http://": "no host", "http://:8100": "no host", "http://h?a=b": "query", "http://h?": "query", "http://h#f": "fragment",
		"http://h:0": `port "0"`, "http://h:99999": `port "99999"`, "http://u:p@h": AddressUser, "http://u@h:99999": "port",
	} {
		got := AddressFault(s)
		if got == "" != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%q: %q, want %q", s, got, want)
		}
		if strings.Contains(got, "u:p") {
			t.Errorf("%q shows its credentials: %q", s, got)
		}
	}
}
