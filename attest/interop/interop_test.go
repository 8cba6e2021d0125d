package interop

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	protobundle "github.com/sigstore/protobuf-specs/gen/pb-go/bundle/v1"
	protocommon "github.com/sigstore/protobuf-specs/gen/pb-go/common/v1"
	protodsse "github.com/sigstore/protobuf-specs/gen/pb-go/dsse"
	protorekor "github.com/sigstore/protobuf-specs/gen/pb-go/rekor/v1"
	"github.com/sigstore/sigstore-go/pkg/bundle"
	"github.com/sigstore/sigstore-go/pkg/root"
	"github.com/sigstore/sigstore-go/pkg/sign"
	"github.com/sigstore/sigstore-go/pkg/testing/ca"
	"github.com/sigstore/sigstore-go/pkg/tlog"
	"github.com/sigstore/sigstore-go/pkg/verify"
	"github.com/sigstore/sigstore/pkg/signature"
	"google.golang.org/protobuf/encoding/protojson"
)

const predicateType = "https://example.test/verdict/v1"

// narwhal is the program, built once from the module above.
var narwhal = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "narwhal-interop-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "narwhal")
	cmd := exec.Command("go", "build", "-C", "../..", "-trimpath", "-o", path, "./cmd/narwhal")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build narwhal: %w\n%s", err, out)
	}
	return path, nil
})

// run runs narwhal and returns its exit code.
func run(t *testing.T, args ...string) (int, string) {
	t.Helper()
	bin, err := narwhal()
	if err != nil {
		t.Fatal(err)
	}
	return command(t, bin, args...)
}

func command(t *testing.T, bin string, args ...string) (int, string) {
	t.Helper()
	cmd := exec.Command(bin, args...)
	cmd.Env = append(os.Environ(), "COSIGN_PASSWORD=pass", "HOME="+t.TempDir(), "HTTPS_PROXY=http://192.0.2.1:1", "HTTP_PROXY=http://192.0.2.1:1")
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

// cosign is $COSIGN or the program in PATH; without one the test is skipped, unless
// $COSIGN names one that is not there.
func cosign(t *testing.T) string {
	t.Helper()
	name := os.Getenv("COSIGN")
	if name == "" {
		name = "cosign"
	}
	path, err := exec.LookPath(name)
	if err != nil && os.Getenv("COSIGN") != "" {
		t.Fatal(err)
	}
	if err != nil {
		t.Skip("needs cosign; make interop builds one")
	}
	return path
}

// keyFiles are private and public keys in PEM of every accepted kind.
func keyFiles(t *testing.T) map[string][2]string {
	t.Helper()
	p256, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	r3072, err := rsa.GenerateKey(rand.Reader, 3072)
	if err != nil {
		t.Fatal(err)
	}
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][2]string{}
	for name, k := range map[string]crypto.Signer{"ECDSA": p256, "RSA": r3072, "Ed25519": ed} {
		private, err := x509.MarshalPKCS8PrivateKey(k)
		if err != nil {
			t.Fatal(err)
		}
		public, err := x509.MarshalPKIXPublicKey(k.Public())
		if err != nil {
			t.Fatal(err)
		}
		out[name] = [2]string{
			write(t, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})),
			write(t, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public})),
		}
	}
	made := filepath.Join(t.TempDir(), "made.key")
	if code, out := run(t, "keys", "generate", "-o", made); code != 0 {
		t.Fatal(out)
	}
	out["made by narwhal"] = [2]string{made, made + ".pub"}
	return out
}

func write(t *testing.T, b []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// library verifies with sigstore-go and a plain key.
func library(t *testing.T, raw []byte, public string, artifact []byte) error {
	t.Helper()
	block, _ := pem.Decode(read(t, public))
	key, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	v, err := signature.LoadVerifier(key, crypto.SHA256)
	if err != nil {
		t.Fatal(err)
	}
	material := root.NewTrustedPublicKeyMaterial(func(string) (root.TimeConstrainedVerifier, error) {
		return root.NewExpiringKey(v, time.Time{}, time.Time{}), nil
	})
	return libraryVerify(t, raw, material, artifact, verify.WithKey(), verify.WithNoObserverTimestamps())
}

func libraryVerify(t *testing.T, raw []byte, material root.TrustedMaterial, artifact []byte, who verify.PolicyOption, how ...verify.VerifierOption) error {
	t.Helper()
	var b bundle.Bundle
	if err := b.UnmarshalJSON(raw); err != nil {
		return err
	}
	v, err := verify.NewVerifier(material, how...)
	if err != nil {
		t.Fatal(err)
	}
	_, err = v.Verify(&b, verify.NewPolicy(verify.WithArtifact(bytes.NewReader(artifact)), who))
	return err
}

// tampered changes the payload of a bundle.
func tampered(t *testing.T, raw []byte) []byte {
	t.Helper()
	var tree map[string]any
	if err := json.Unmarshal(raw, &tree); err != nil {
		t.Fatal(err)
	}
	env := tree["dsseEnvelope"].(map[string]any)
	payload, err := base64.StdEncoding.DecodeString(env["payload"].(string))
	if err != nil {
		t.Fatal(err)
	}
	changed := bytes.Replace(payload, []byte("passed"), []byte("passeD"), 1)
	if bytes.Equal(changed, payload) {
		t.Fatal("nothing to change")
	}
	env["payload"] = base64.StdEncoding.EncodeToString(changed)
	out, err := json.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestTheyVerifyOurs(t *testing.T) {
	artifact, predicate := []byte("line"), write(t, []byte(`{"verdict":"passed"}`))
	file, other := write(t, artifact), write(t, []byte("other"))
	keys := keyFiles(t)
	stranger := keyFiles(t)["ECDSA"][1]
	for name, k := range keys {
		t.Run(name, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "b.json")
			if code, text := run(t, "attest", "create", file, "--key", k[0], "--type", predicateType, "--predicate", predicate, "-o", out); code != 0 {
				t.Fatal(text)
			}
			raw := read(t, out)
			bad := write(t, tampered(t, raw))
			t.Run("sigstore-go", func(t *testing.T) {
				if err := library(t, raw, k[1], artifact); err != nil {
					t.Error(err)
				}
				for what, err := range map[string]error{
					"tampered": library(t, read(t, bad), k[1], artifact), "another artifact": library(t, raw, k[1], []byte("other")), "another key": library(t, raw, stranger, artifact),
				} {
					if err == nil {
						t.Errorf("%s: accepted", what)
					}
				}
			})
			t.Run("cosign", func(t *testing.T) {
				bin := cosign(t)
				check := func(key, bundle, kind, file string) (int, string) {
					return command(t, bin, "verify-blob-attestation", "--key", key, "--bundle", bundle, "--insecure-ignore-tlog", "--type", kind, file)
				}
				if code, text := check(k[1], out, predicateType, file); code != 0 {
					t.Error(text)
				}
				for what, args := range map[string][4]string{
					"tampered": {k[1], bad, predicateType, file}, "another artifact": {k[1], out, predicateType, other},
					"another key": {stranger, out, predicateType, file}, "another type": {k[1], out, predicateType + "x", file},
				} {
					if code, _ := check(args[0], args[1], args[2], args[3]); code == 0 {
						t.Errorf("%s: accepted", what)
					}
				}
			})
		})
	}
}

// ours verifies with narwhal and returns its exit code.
func ours(t *testing.T, raw []byte, file string, more ...string) (int, string) {
	t.Helper()
	return run(t, append([]string{"attest", "verify", write(t, raw), file, "--type", predicateType}, more...)...)
}

func statement(artifact []byte) []byte {
	sum := sha256.Sum256(artifact)
	return fmt.Appendf(nil, `{"_type":"https://in-toto.io/Statement/v1","subject":[{"name":"line","digest":{"sha256":"%s"}}],"predicateType":"%s","predicate":{"verdict":"passed"}}`,
		hex.EncodeToString(sum[:]), predicateType)
}

func TestWeVerifyTheirsByKey(t *testing.T) {
	artifact := []byte("line")
	file, other, stranger := write(t, artifact), write(t, []byte("other")), keyFiles(t)["ECDSA"][1]
	check := func(t *testing.T, raw []byte, public string) {
		t.Helper()
		if code, text := ours(t, raw, file, "--key", public); code != 0 {
			t.Errorf("exit %d: %s\n%s", code, text, raw)
		}
		for what, code := range map[string]int{
			"tampered":         first(ours(t, tampered(t, raw), file, "--key", public)),
			"another artifact": first(ours(t, raw, other, "--key", public)),
			"another key":      first(ours(t, raw, file, "--key", stranger)),
		} {
			if code != 8 {
				t.Errorf("%s: exit %d", what, code)
			}
		}
	}
	for name, alg := range map[string]protocommon.PublicKeyDetails{
		"P-256": protocommon.PublicKeyDetails_PKIX_ECDSA_P256_SHA_256, "Ed25519": protocommon.PublicKeyDetails_PKIX_ED25519, "RSA": protocommon.PublicKeyDetails_PKIX_RSA_PKCS1V15_3072_SHA256,
	} {
		t.Run("sigstore-go "+name, func(t *testing.T) {
			pair, err := sign.NewEphemeralKeypair(&sign.EphemeralKeypairOptions{Algorithm: alg})
			if err != nil {
				t.Fatal(err)
			}
			b, err := sign.Bundle(&sign.DSSEData{Data: statement(artifact), PayloadType: "application/vnd.in-toto+json"}, pair, sign.BundleOptions{})
			if err != nil {
				t.Fatal(err)
			}
			raw, err := protojson.Marshal(b)
			if err != nil {
				t.Fatal(err)
			}
			public, err := pair.GetPublicKeyPem()
			if err != nil {
				t.Fatal(err)
			}
			check(t, raw, write(t, []byte(public)))
		})
	}
	t.Run("cosign", func(t *testing.T) {
		bin := cosign(t)
		dir := t.TempDir()
		if code, text := command(t, bin, "generate-key-pair", "--output-key-prefix", filepath.Join(dir, "c")); code != 0 {
			t.Fatal(text)
		}
		for name, from := range map[string][]string{
			"predicate": {"--predicate", write(t, []byte(`{"verdict":"passed"}`)), "--type", predicateType, file},
			"statement": {"--statement", write(t, statement(artifact))},
		} {
			t.Run(name, func(t *testing.T) {
				out := filepath.Join(dir, name+".json")
				config := write(t, []byte(`{"mediaType":"application/vnd.dev.sigstore.signingconfig.v0.2+json"}`))
				args := append([]string{"attest-blob", "--yes", "--key", filepath.Join(dir, "c.key"), "--signing-config", config, "--bundle", out}, from...)
				if code, text := command(t, bin, args...); code != 0 {
					t.Fatal(text)
				}
				check(t, read(t, out), filepath.Join(dir, "c.pub"))
			})
		}
	})
}

func first(code int, _ string) int { return code }

const (
	issuer  = "https://issuer.example.test"
	subject = "ci@example.test"
)

// keyless makes a bundle that is signed with a certificate, as the flow with a browser or
// a CI's token does, with an authority and a log of its own.
func keyless(t *testing.T, sigstore *ca.VirtualSigstore, payload []byte, at time.Time) []byte {
	t.Helper()
	e, err := sigstore.AttestAtTime(subject, issuer, payload, at, true)
	if err != nil {
		t.Fatal(err)
	}
	content, err := e.SignatureContent()
	if err != nil {
		t.Fatal(err)
	}
	env := content.EnvelopeContent().RawEnvelope()
	body, err := env.DecodeB64Payload()
	if err != nil {
		t.Fatal(err)
	}
	sig, err := base64.StdEncoding.DecodeString(env.Signatures[0].Sig)
	if err != nil {
		t.Fatal(err)
	}
	vc, err := e.VerificationContent()
	if err != nil {
		t.Fatal(err)
	}
	entries, err := e.TlogEntries()
	if err != nil {
		t.Fatal(err)
	}
	entry := entries[0].TransparencyLogEntry()
	if entry.KindVersion == nil || entry.KindVersion.Kind == "" {
		var made struct{ Kind, APIVersion string }
		if err := json.Unmarshal(entry.CanonicalizedBody, &made); err != nil {
			t.Fatal(err)
		}
		entry.KindVersion = &protorekor.KindVersion{Kind: made.Kind, Version: made.APIVersion}
	}
	log, err := sigstore.RekorLogID()
	if err != nil {
		t.Fatal(err)
	}
	promise, err := sigstore.RekorSignPayload(tlog.RekorPayload{
		Body: base64.StdEncoding.EncodeToString(entry.CanonicalizedBody), IntegratedTime: entry.IntegratedTime, LogIndex: entry.LogIndex, LogID: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	entry.InclusionPromise = &protorekor.InclusionPromise{SignedEntryTimestamp: promise}
	raw, err := protojson.Marshal(&protobundle.Bundle{
		MediaType: "application/vnd.dev.sigstore.bundle.v0.3+json",
		VerificationMaterial: &protobundle.VerificationMaterial{
			Content:     &protobundle.VerificationMaterial_Certificate{Certificate: &protocommon.X509Certificate{RawBytes: vc.Certificate().Raw}},
			TlogEntries: []*protorekor.TransparencyLogEntry{entry},
		},
		Content: &protobundle.Bundle_DsseEnvelope{DsseEnvelope: &protodsse.Envelope{
			Payload: body, PayloadType: env.PayloadType, Signatures: []*protodsse.Signature{{Sig: sig}},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// trustedRoot exports what verifies an authority's bundles.
func trustedRoot(t *testing.T, sigstore *ca.VirtualSigstore) []byte {
	t.Helper()
	binary := func(logs map[string]*root.TransparencyLog) map[string]*root.TransparencyLog {
		for _, l := range logs { // they hold their ids in hexadecimal
			id, err := hex.DecodeString(string(l.ID))
			if err != nil {
				t.Fatal(err)
			}
			l.ID = id
		}
		return logs
	}
	r, err := root.NewTrustedRoot(root.TrustedRootMediaType01, sigstore.FulcioCertificateAuthorities(), binary(sigstore.CTLogs()), sigstore.TimestampingAuthorities(), binary(sigstore.RekorLogs()))
	if err != nil {
		t.Fatal(err)
	}
	raw, err := r.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func TestWeVerifyTheirsByIdentity(t *testing.T) {
	artifact := []byte("line")
	file := write(t, artifact)
	sigstore, err := ca.NewVirtualSigstore()
	if err != nil {
		t.Fatal(err)
	}
	stranger, err := ca.NewVirtualSigstore()
	if err != nil {
		t.Fatal(err)
	}
	raw := keyless(t, sigstore, statement(artifact), time.Now().Add(5*time.Minute))
	rootJSON := trustedRoot(t, sigstore)
	material, err := root.NewTrustedRootFromJSON(rootJSON)
	if err != nil {
		t.Fatal(err)
	}
	identity, err := verify.NewShortCertificateIdentity(issuer, "", subject, "")
	if err != nil {
		t.Fatal(err)
	}
	theirs := func(raw []byte) error {
		return libraryVerify(t, raw, material, artifact, verify.WithCertificateIdentity(identity), verify.WithTransparencyLog(1), verify.WithIntegratedTimestamps(1))
	}
	trusted := []string{"--trusted-root", write(t, rootJSON), "--issuer", issuer, "--subject", subject}
	if err := theirs(raw); err != nil {
		t.Fatalf("sigstore-go refuses its own: %v", err)
	}
	if code, text := ours(t, raw, file, trusted...); code != 0 || !strings.Contains(text, subject) {
		t.Fatalf("exit %d: %s", code, text)
	}
	edit := func(change func(material, entry map[string]any)) []byte {
		var tree map[string]any
		if err := json.Unmarshal(raw, &tree); err != nil {
			t.Fatal(err)
		}
		m := tree["verificationMaterial"].(map[string]any)
		change(m, m["tlogEntries"].([]any)[0].(map[string]any))
		out, err := json.Marshal(tree)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	second := keyless(t, sigstore, statement(artifact), time.Now().Add(5*time.Minute))
	var of struct {
		Material struct {
			Certificate any   `json:"certificate"`
			Entries     []any `json:"tlogEntries"`
		} `json:"verificationMaterial"`
	}
	if err := json.Unmarshal(second, &of); err != nil {
		t.Fatal(err)
	}
	for name, bad := range map[string][]byte{
		"tampered":                       tampered(t, raw),
		"no entry":                       edit(func(m, _ map[string]any) { delete(m, "tlogEntries") }),
		"two entries":                    edit(func(m, e map[string]any) { m["tlogEntries"] = []any{e, e} }),
		"another time":                   edit(func(_, e map[string]any) { e["integratedTime"] = "1" }),
		"another place":                  edit(func(_, e map[string]any) { e["logIndex"] = "4242" }),
		"the entry of another signature": edit(func(m, _ map[string]any) { m["tlogEntries"] = of.Material.Entries }),
		"the certificate of another":     edit(func(m, _ map[string]any) { m["certificate"] = of.Material.Certificate }),
		"no promise":                     edit(func(_, e map[string]any) { delete(e, "inclusionPromise") }),
		"signed after the certificate":   keyless(t, sigstore, statement(artifact), time.Now().Add(30*time.Minute)),
		"signed before the certificate":  keyless(t, sigstore, statement(artifact), time.Now().Add(-30*time.Minute)),
		"another authority and log":      keyless(t, stranger, statement(artifact), time.Now().Add(5*time.Minute)),
		"about another artifact":         keyless(t, sigstore, statement([]byte("x")), time.Now().Add(5*time.Minute)),
	} {
		code, text := ours(t, bad, file, trusted...)
		if code != 8 {
			t.Errorf("%s: exit %d: %s", name, code, text)
		}
		if err := theirs(bad); err == nil && name != "two entries" && name != "no promise" {
			t.Errorf("%s: sigstore-go accepts", name)
		}
	}
	for name, args := range map[string][]string{
		"another subject": {"--trusted-root", trusted[1], "--issuer", issuer, "--subject", "x" + subject},
		"another issuer":  {"--trusted-root", trusted[1], "--issuer", issuer + "/x", "--subject", subject},
		"another root":    {"--trusted-root", write(t, trustedRoot(t, stranger)), "--issuer", issuer, "--subject", subject},
		"only a key":      {"--key", keyFiles(t)["ECDSA"][1]},
	} {
		if code, text := ours(t, raw, file, args...); code != 8 {
			t.Errorf("%s: exit %d: %s", name, code, text)
		}
	}
	t.Run("cosign agrees", func(t *testing.T) {
		bin := cosign(t)
		code, text := command(t, bin, "verify-blob-attestation", "--bundle", write(t, raw), "--trusted-root", trusted[1], "--certificate-identity", subject, "--certificate-oidc-issuer", issuer,
			"--insecure-ignore-sct", "--type", predicateType, file)
		if code != 0 {
			t.Error(text)
		}
	})
}

// TestTheyVerifyOurSeals makes a record with the demo and lets both verify every seal
// against the line that it names.
func TestTheyVerifyOurSeals(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the demo, about a minute")
	}
	dir := t.TempDir()
	code, text := run(t, "demo", "--quick", "--hosts", "2", "--dir", filepath.Join(dir, "d"), "--format", "json")
	if code != 0 {
		t.Fatal(text)
	}
	runs, err := filepath.Glob(filepath.Join(dir, "d/state/sandbox/runs/*"))
	if err != nil || len(runs) != 1 {
		t.Fatal(runs, err)
	}
	public := filepath.Join(dir, "d/hosts/keys/operator.key.pub")
	lines := bytes.Split(read(t, filepath.Join(runs[0], "log.jsonl")), []byte("\n"))
	seals, err := filepath.Glob(filepath.Join(runs[0], "seals/*.sigstore.json"))
	if err != nil || len(seals) < 8 {
		t.Fatalf("%d seals: %v", len(seals), err)
	}
	for _, path := range seals {
		raw := read(t, path)
		var b struct {
			Envelope struct {
				Payload []byte `json:"payload"`
			} `json:"dsseEnvelope"`
		}
		var st struct {
			Type      string `json:"predicateType"`
			Predicate struct {
				Seq int `json:"seq"`
			} `json:"predicate"`
		}
		if json.Unmarshal(raw, &b) != nil || json.Unmarshal(b.Envelope.Payload, &st) != nil || st.Predicate.Seq < 1 {
			t.Fatalf("%s is not readable", path)
		}
		line := lines[st.Predicate.Seq-1]
		if err := library(t, raw, public, line); err != nil {
			t.Errorf("%s: sigstore-go: %v", filepath.Base(path), err)
		}
		if library(t, raw, public, lines[0]) == nil {
			t.Errorf("%s: sigstore-go accepts another line", filepath.Base(path))
		}
		if bin, err := exec.LookPath(cosignName()); err == nil {
			if code, text := command(t, bin, "verify-blob-attestation", "--key", public, "--bundle", path, "--insecure-ignore-tlog", "--type", st.Type, write(t, line)); code != 0 {
				t.Errorf("%s: cosign: %s", filepath.Base(path), text)
			}
		}
	}
}

func cosignName() string {
	if name := os.Getenv("COSIGN"); name != "" {
		return name
	}
	return "cosign"
}
