package fleet

import "testing"

func TestAddressKey(t *testing.T) {
	for a, b := range map[string]string{
		"http://h:1":            "HTTP://H:1/",
		"http://h":              "http://h:80//",
		"https://h/p":           "https://h:443/p/",
		"http://[::1]:1":        "http://[::1]:1/",
		"http://example.com:80": "http://Example.COM",
	} {
		if AddressKey(a) != AddressKey(b) {
			t.Errorf("%s is %s, %s is %s", a, AddressKey(a), b, AddressKey(b))
		}
	}
	for a, b := range map[string]string{"http://h:1": "http://h:2", "http://h": "https://h", "http://h/a": "http://h/A", "http://h:443": "https://h", "http://a": "http://b"} {
		if AddressKey(a) == AddressKey(b) {
			t.Errorf("%s and %s are both %s", a, b, AddressKey(a))
		}
	}
}
