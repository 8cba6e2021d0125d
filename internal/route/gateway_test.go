package route

import (
	"os/exec"
	"runtime"
	"strings"
	"testing"
)

// TestGateway asks for the way to the loopback, which has none, and to where the default
// route leads, as the ip command tells.
func TestGateway(t *testing.T) {
	for _, dst := range []string{"127.0.0.1", "::1", "", "no address", "192.0.2.1:9"} {
		if got := Gateway(dst); got != "" {
			t.Errorf("%q goes through %q", dst, got)
		}
	}
	if runtime.GOOS != "linux" {
		return
	}
	out, err := exec.Command("ip", "route", "get", "192.0.2.1").Output()
	if err != nil {
		t.Skip("ip tells no route")
	}
	want := ""
	if _, after, ok := strings.Cut(string(out), " via "); ok {
		want, _, _ = strings.Cut(after, " ")
	}
	if got := Gateway("192.0.2.1"); got != want {
		t.Errorf("a packet goes through %q, ip says %q", got, want)
	}
}
