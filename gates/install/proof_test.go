package install

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/narwhal-fleet/narwhal/attest"
	"github.com/narwhal-fleet/narwhal/gates"
)

// signing is an environment of a local step that signs with a key.
type signing struct {
	gates.Env
	view gates.View
	key  *attest.Signer
}

func (s signing) View() gates.View { return s.view }

func (s signing) Sign(st attest.Statement) ([]byte, error) {
	if s.key == nil {
		return nil, nil
	}
	return attest.Sign(s.key, st)
}

func ecdsaKey(t *testing.T) *attest.Signer {
	t.Helper()
	private, _, err := attest.GenerateKey(nil)
	must(t, err)
	return loaded(t, private)
}

func loaded(t *testing.T, private []byte) *attest.Signer {
	t.Helper()
	s, err := attest.LoadSigner(private, nil)
	must(t, err)
	return s
}

func pkcs8(t *testing.T, key any) *attest.Signer {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, err)
	return loaded(t, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

// sent is a root with a release and its manifest, as gate B leaves them before the proof.
type sent struct {
	root, release, binary string
	view                  gates.View
}

func send(t *testing.T, signer *attest.Signer, trust ...*attest.Signer) sent {
	t.Helper()
	content := "#!/bin/sh\necho runs\n"
	sum := sha256.Sum256([]byte(content))
	s := sent{root: filepath.Join(t.TempDir(), "it's"), release: hex.EncodeToString(sum[:])}
	s.binary = filepath.Join(s.root, gates.DirReleases, s.release, "narwhal")
	mkdir(t, filepath.Dir(s.binary), 0o755)
	must(t, os.WriteFile(s.binary, []byte(content), 0o644))
	s.view = gates.View{Fleet: testFleet(), Run: "r", Release: gates.Release{SHA256: s.release, Arch: "linux/amd64", More: []gates.Binary{{SHA256: digest("b"), Arch: "linux/arm64"}}}}
	for _, k := range trust {
		s.view.Fleet.Deploy.Sign.Trust = append(s.view.Fleet.Deploy.Sign.Trust, "file:x")
		s.view.Release.Trust = append(s.view.Release.Trust, string(k.Public().PEM()))
	}
	s.manifest(t, signer, s.view)
	return s
}

func (s sent) manifest(t *testing.T, signer *attest.Signer, v gates.View) {
	t.Helper()
	b, err := Gate{}.Locals()["manifest"](t.Context(), signing{view: v, key: signer}, nil)
	must(t, err)
	if got := manifestFaults(b); got != nil {
		t.Fatalf("manifest: %+v", got)
	}
	must(t, os.WriteFile(manifestPath(s.root, s.release), b, 0o644))
}

// without is a PATH with the tools that the script needs but one.
func without(t *testing.T, missing ...string) string {
	t.Helper()
	dir := t.TempDir()
next:
	for _, tool := range []string{"sha256sum", "shasum", "openssl", "sed", "wc", "cat", "mktemp", "grep", "rm", "chmod", "mkdir", "mv", "sh", "bash", "dash", "busybox"} {
		for _, m := range missing {
			if m == tool {
				continue next
			}
		}
		if at, err := exec.LookPath(tool); err == nil {
			must(t, os.Symlink(at, filepath.Join(dir, tool)))
		}
	}
	return "PATH=" + dir
}

func executable(t *testing.T, path string) bool {
	t.Helper()
	info, err := os.Stat(path)
	must(t, err)
	return info.Mode()&0o111 != 0
}

// needOpenSSL skips where there is none; with NARWHAL_REQUIRE_PYTHON set, which is for both, that fails.
func needOpenSSL(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("openssl"); err != nil {
		if os.Getenv("NARWHAL_REQUIRE_PYTHON") == "1" {
			t.Fatal("openssl is required and not installed")
		}
		t.Skip("needs openssl")
	}
}

// TestProof lets run what is proven, and nothing else.
func TestProof(t *testing.T) {
	needOpenSSL(t)
	a, b := ecdsaKey(t), ecdsaKey(t)
	_, private, err := ed25519.GenerateKey(rand.Reader)
	must(t, err)
	ed := pkcs8(t, private)
	long, err := rsa.GenerateKey(rand.Reader, 2048)
	must(t, err)
	rs := pkcs8(t, long)
	pinned := func(t *testing.T, s sent, keys ...*attest.Signer) {
		mkdir(t, filepath.Join(s.root, trustDir), 0o755)
		for i, k := range keys {
			must(t, os.WriteFile(filepath.Join(s.root, trustDir, string(rune('a'+i))+".pem"), k.Public().PEM(), 0o644))
		}
	}
	for name, c := range map[string]struct {
		signer *attest.Signer
		trust  []*attest.Signer
		change func(*testing.T, sent)
		env    func(*testing.T) string
		want   string // findings
		says   string
	}{
		"no key is trusted":          {want: "", says: "digest sha256sum "},
		"signed, pinned at first":    {signer: a, trust: []*attest.Signer{a}, says: "trust pinned\nsignature good openssl with key-1.pem\n"},
		"one of two keys":            {signer: b, trust: []*attest.Signer{a, b}, says: "signature good openssl with key-2.pem\n"},
		"an Ed25519 key":             {signer: ed, trust: []*attest.Signer{ed}, says: "signature good "},
		"an RSA key":                 {signer: rs, trust: []*attest.Signer{rs}, says: "signature good "},
		"held keys":                  {signer: a, trust: []*attest.Signer{b}, change: func(t *testing.T, s sent) { pinned(t, s, b, a) }, says: "trust held\nsignature good "},
		"another key than at first":  {signer: a, trust: []*attest.Signer{a}, change: func(t *testing.T, s sent) { pinned(t, s, b) }, want: "release-signature"},
		"no key is left":             {signer: a, trust: []*attest.Signer{a}, change: func(t *testing.T, s sent) { pinned(t, s) }, want: "release-signature"},
		"not signed":                 {trust: []*attest.Signer{a}, want: "release-signature"},
		"the binary was changed":     {signer: a, trust: []*attest.Signer{a}, change: func(t *testing.T, s sent) { must(t, os.WriteFile(s.binary, []byte("#!/bin/sh\necho evil\n"), 0o755)) }, want: "release-digest"},
		"changed, no key is trusted": {change: func(t *testing.T, s sent) { must(t, os.WriteFile(s.binary, []byte("x"), 0o755)) }, want: "release-digest"},
		"signed for another release": {signer: a, trust: []*attest.Signer{a}, change: func(t *testing.T, s sent) {
			v := s.view
			v.Release.SHA256 = digest("c")
			s.manifest(t, a, v)
		}, want: "release-signature", says: "what is signed is not this release"},
		"a statement of another kind": {signer: a, trust: []*attest.Signer{a}, change: func(t *testing.T, s sent) {
			st, err := attest.Sign(a, attest.Statement{Subject: []attest.Subject{attest.SHA256Subject("narwhal", s.release)}, PredicateType: gates.PredicateGate, Predicate: []byte("{}")})
			must(t, err)
			must(t, os.WriteFile(manifestPath(s.root, s.release), []byte(`{"statement":`+string(st)+`}`), 0o644))
		}, want: "release-signature", says: "what is signed is not this release"},
		"the statement was changed": {signer: a, trust: []*attest.Signer{a}, change: func(t *testing.T, s sent) {
			b, err := os.ReadFile(manifestPath(s.root, s.release))
			must(t, err)
			head, tail, _ := strings.Cut(string(b), `"payload":"`)
			must(t, os.WriteFile(manifestPath(s.root, s.release), []byte(head+`"payload":"AAAA`+tail[4:]), 0o644))
		}, want: "release-signature"},
		"no manifest": {signer: a, trust: []*attest.Signer{a}, change: func(t *testing.T, s sent) {
			must(t, os.WriteFile(manifestPath(s.root, s.release), []byte("hello"), 0o644))
		}, want: "release-signature"},
		"no openssl": {signer: a, trust: []*attest.Signer{a}, env: func(t *testing.T) string { return without(t, "openssl") }, want: "release-signature-unchecked noted"},
		"no openssl, a release that accepts it": {signer: a, trust: []*attest.Signer{a}, env: func(t *testing.T) string { return without(t, "openssl") },
			change: before(`echo '{"signature":"good"}'`), says: "signature good the release before"},
		"no openssl, a release that refuses it": {signer: a, trust: []*attest.Signer{a}, env: func(t *testing.T) string { return without(t, "openssl") },
			change: before(`echo '{"signature":"bad","why":"x"}'`), want: "release-signature"},
		"no openssl, a release that cannot": {signer: a, trust: []*attest.Signer{a}, env: func(t *testing.T) string { return without(t, "openssl") },
			change: before(`echo 'no such verb' >&2; exit 2`), want: "release-signature-unchecked noted"},
		"openssl alone":    {signer: a, trust: []*attest.Signer{a}, env: func(t *testing.T) string { return without(t, "sha256sum", "shasum") }, says: "digest openssl "},
		"nothing to prove": {env: func(t *testing.T) string { return without(t, "sha256sum", "shasum", "openssl") }, says: "digest none -"},
	} {
		for _, shell := range shells(t) {
			if shell[0] == "mksh" || shell[0] == "zsh" {
				continue // not in the folder of tools
			}
			t.Run(name+"/"+shell[0], func(t *testing.T) {
				s := send(t, c.signer, c.trust...)
				if c.change != nil {
					c.change(t, s)
				}
				env := "LC_ALL=de_DE"
				if c.env != nil {
					env = c.env(t)
				}
				got := run(t, shell, proofProbe(s.root, s.release, s.view), env)
				if found := codes(proofFaults([]byte(got), s.release, trusts(s.view))); found != c.want || !strings.Contains(got, c.says) {
					t.Errorf("found %q, want %q\n%s", found, c.want, got)
				}
				refused := c.want != "" && !strings.HasSuffix(c.want, " noted")
				if executable(t, s.binary) == refused {
					t.Errorf("executable: %v\n%s", !refused, got)
				}
				if halts := (Gate{}).Halts(proofKey("h"), []byte(got)) != ""; halts != refused {
					t.Errorf("halts %v", halts)
				}
				if left, _ := filepath.Glob(filepath.Join(filepath.Dir(s.binary), ".proof*")); len(left) > 0 {
					t.Errorf("left %v", left)
				}
			})
		}
	}
}

// TestProofOfWhatRuns: who has no trusted key cannot stop the release that runs.
func TestProofOfWhatRuns(t *testing.T) {
	needOpenSSL(t)
	s := send(t, ecdsaKey(t), ecdsaKey(t))
	must(t, os.Chmod(s.binary, 0o755))
	got := run(t, []string{"sh"}, proofProbe(s.root, s.release, s.view))
	if found := codes(proofFaults([]byte(got), s.release, true)); found != "release-signature" || !executable(t, s.binary) {
		t.Errorf("found %q, executable %v", found, executable(t, s.binary))
	}
}

// before puts a release there that was installed earlier.
func before(script string) func(*testing.T, sent) {
	return func(t *testing.T, s sent) {
		dir := filepath.Join(s.root, gates.DirReleases, digest("0"))
		mkdir(t, dir, 0o755)
		must(t, os.WriteFile(filepath.Join(dir, "narwhal"), []byte("#!/bin/sh\n"+script+"\n"), 0o755))
		must(t, point(s.root, digest("0")))
	}
}

func TestProofFaultsOfStrangeAnswers(t *testing.T) {
	d := digest("a")
	for name, c := range map[string]struct {
		text, want string
		trust      bool
	}{
		"cut":               {"digest sha256sum " + d + "\nruns yes\n", "install-answer-cut", false},
		"nothing":           {"", "install-answer-cut", false},
		"did not run":       {"digest sha256sum " + d + "\nruns no\nend\n", "install-answer-cut", false},
		"no signature told": {"digest sha256sum " + d + "\nruns yes\nend\n", "install-answer-cut", true},
		"another word":      {"digest sha256sum " + d + "\nsignature perhaps\nruns yes\nend\n", "install-answer-cut", true},
	} {
		if got := codes(proofFaults([]byte(c.text), d, c.trust)); got != c.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// TestCheckRelease is what the release before says of a new one.
func TestCheckRelease(t *testing.T) {
	a, b := ecdsaKey(t), ecdsaKey(t)
	for name, c := range map[string]struct {
		signer, trusted *attest.Signer
		want            string
	}{"good": {a, a, "good"}, "another key": {a, b, "bad"}, "not signed": {nil, a, "bad"}, "no trusted key": {a, nil, "bad"}} {
		s := send(t, c.signer)
		mkdir(t, filepath.Join(s.root, trustDir), 0o755)
		if c.trusted != nil {
			must(t, os.WriteFile(filepath.Join(s.root, trustDir, "k.pem"), c.trusted.Public().PEM(), 0o644))
		}
		if got, err := checkRelease(t.Context(), SwitchRequest{Root: s.root, Release: s.release}); err != nil || got.Signature != c.want {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	s := send(t, a, a)
	mkdir(t, filepath.Join(s.root, trustDir), 0o755)
	must(t, os.WriteFile(filepath.Join(s.root, trustDir, "k.pem"), a.Public().PEM(), 0o644))
	other := s.view
	other.Release.SHA256 = digest("d")
	s.manifest(t, a, other)
	if got, err := checkRelease(t.Context(), SwitchRequest{Root: s.root, Release: s.release}); err != nil || got.Signature != "bad" {
		t.Errorf("signed for another: %+v, %v", got, err)
	}
	if _, err := checkRelease(t.Context(), SwitchRequest{Root: s.root, Release: "../x"}); err == nil {
		t.Error("a path was taken for a digest")
	}
}
