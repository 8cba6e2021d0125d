package main

import "testing"

func TestOwnAddress(t *testing.T) {
	for _, c := range []struct {
		of, listen string
		own        bool
	}{
		{"http://127.0.0.1:8000", "127.0.0.1:8000", true},
		{"http://localhost:8000", "127.0.0.1:8000", true},
		{"http://127.0.0.1:8000", "0.0.0.0:8000", true},
		{"http://[::1]:8000", "[::]:8000", true},
		{"http://127.0.0.1:8000", ":8000", true},
		{"http://10.0.0.1:8000", "10.0.0.1:8000", true},
		{"http://10.0.0.1:8000", "0.0.0.0:8000", false}, // of this host or another: not known
		{"http://127.0.0.1:8001", "127.0.0.1:8000", false},
		{"http://10.0.0.2:8000", "10.0.0.1:8000", false},
		{"http://0.0.0.0:8000", "127.0.0.1:8000", true},
		{"http://127.0.0.2:8000", "127.0.0.1:8000", false},
		{"http://127.0.0.1:0", "127.0.0.1:0", false},
	} {
		if got := ownAddress(c.of, c.listen); got != c.own {
			t.Errorf("--of %s, --listen %s: %v", c.of, c.listen, got)
		}
	}
}
