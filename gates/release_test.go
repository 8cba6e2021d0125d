package gates

import "testing"

func TestReleaseFor(t *testing.T) {
	one := Release{SHA256: "a", Arch: "linux/amd64"}
	two := Release{SHA256: "a", Arch: "linux/amd64", More: []Binary{{SHA256: "b", Arch: "linux/arm64"}, {SHA256: "c", Arch: "linux/amd64"}}}
	for name, c := range map[string]struct {
		rel    Release
		arch   string
		digest string
		fits   bool
	}{
		"the same":                 {one, "linux/amd64", "a", true},
		"another":                  {one, "linux/arm64", "a", false},
		"not known of the host":    {one, "", "a", true},
		"not known of the release": {Release{SHA256: "a"}, "linux/arm64", "a", true},
		"named":                    {two, "linux/arm64", "b", true},
		"named before the general": {two, "linux/amd64", "c", true},
		"named none":               {two, "darwin/arm64", "a", false},
		"several, not known":       {two, "", "a", true},
	} {
		if b, fits := c.rel.For(c.arch); b.SHA256 != c.digest || fits != c.fits {
			t.Errorf("%s: %s, %v", name, b.SHA256, fits)
		}
	}
	if one.Digest() != "a" || two.Digest() == "a" || two.Digest() == (Release{SHA256: "a", Arch: "linux/amd64", More: two.More[:1]}).Digest() {
		t.Errorf("digests %s, %s", one.Digest(), two.Digest())
	}
	for digest, want := range map[string]bool{"a": true, "b": true, "d": false} {
		if _, ok := two.named(digest); ok != want {
			t.Errorf("%s: %v", digest, ok)
		}
	}
}

func TestArch(t *testing.T) {
	for want, uname := range map[string][2]string{
		"linux/amd64": {"Linux", "x86_64"}, "linux/arm64": {"Linux", "aarch64"}, "darwin/arm64": {"Darwin", "arm64"}, "freebsd/amd64": {"FreeBSD", "amd64"}, "linux/riscv64": {"Linux", "riscv64"}, "": {"", ""},
	} {
		if got := Arch(uname[0], uname[1]); got != want {
			t.Errorf("%v is %s, want %s", uname, got, want)
		}
	}
}
