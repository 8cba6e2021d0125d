package gates

import "strings"

// Release is the narwhal binary that the hosts carry.
type Release struct {
	Path   string `json:"-"`
	SHA256 string `json:"sha256"`
	Bytes  int64  `json:"bytes"`
	Arch   string `json:"arch"` // GOOS/GOARCH, "" when the file is no program that is known
	// Interp is the dynamic loader that the program asks for, "" for a static one.
	Interp string `json:"interp,omitempty"`
	// More are binaries for hosts of other machines.
	More []Binary `json:"more,omitempty"`
	// Trust are the public keys, in PEM, that hosts are told to trust at first.
	Trust []string `json:"-"`
}

// Binary is the release for one machine.
type Binary struct {
	Path   string `json:"-"`
	SHA256 string `json:"sha256"`
	Bytes  int64  `json:"bytes"`
	Arch   string `json:"arch"`
	Interp string `json:"interp,omitempty"`
}

// Binaries are all of the release, the general one first.
func (r Release) Binaries() []Binary {
	return append([]Binary{{Path: r.Path, SHA256: r.SHA256, Bytes: r.Bytes, Arch: r.Arch, Interp: r.Interp}}, r.More...)
}

// For returns the binary for a machine: one that names it, else the general one where that
// is for it or where one of the two is not known. Without any it is the general one, and false.
func (r Release) For(arch string) (Binary, bool) {
	for _, b := range r.More {
		if b.Arch == arch {
			return b, true
		}
	}
	return r.Binaries()[0], arch == "" || r.Arch == "" || r.Arch == arch
}

// named returns the binary with a digest.
func (r Release) named(digest string) (Binary, bool) {
	for _, b := range r.Binaries() {
		if b.SHA256 == digest {
			return b, true
		}
	}
	return Binary{}, false
}

// Digest identifies the release: the digest of its binary, or of the list of several.
func (r Release) Digest() string {
	if len(r.More) == 0 {
		return r.SHA256
	}
	return digestOf(r.Binaries())
}

// goNames maps uname's names to Go's.
var goNames = map[string]string{"x86_64": "amd64", "aarch64": "arm64"}

// Arch is GOOS/GOARCH of what uname -s and uname -m say; names that Go does not share stay.
func Arch(system, machine string) string {
	if system == "" && machine == "" {
		return ""
	}
	m := strings.ToLower(machine)
	if name := goNames[m]; name != "" {
		m = name
	}
	return strings.ToLower(system) + "/" + m
}
