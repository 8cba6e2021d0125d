// Package attest signs and verifies in-toto statements in DSSE, as Sigstore
// bundles of version 0.3 with a plain key, and serves and checks the attestation
// of a live engine.
//
// It promises that a verifier exists only with its choices made (keys, predicate
// types, subjects), that what Sign returns has been verified, that a bundle is
// read in one form only, and that each refusal is a sentinel below ErrUnverified.
// It refuses the network and, in signing and verifying, the clock: a plain key
// carries no trusted time, so any time in a predicate is a claim. Log entries and
// timestamps in a bundle signed with a plain key are not checked; Verified names them as
// ignored. A bundle signed with a short-lived certificate is believed only with a trusted
// root and identities given by the caller; its log entry is checked, offline.
//
// It is the only package that imports sigstore.
package attest

import "errors"

// Limits of what is read.
const (
	MaxBundle     = 4 << 20  // bytes of a bundle
	MaxStatement  = 2 << 20  // bytes of a statement
	MaxSubjects   = 10_000   // subjects of a statement
	MaxKey        = 64 << 10 // bytes of a PEM file
	MaxResponse   = 1 << 20  // bytes of an attestation document or response
	MaxMetrics    = 16 << 20 // bytes of an engine's metrics page that are looked at
	MaxIdentity   = 64 << 10 // bytes of an engine's version answer
	MaxRequest    = 4 << 10  // bytes of a statement request
	MinNonceBytes = 16
	MaxNonceBytes = 64
)

// Names of the formats.
const (
	BundleMediaType = "application/vnd.dev.sigstore.bundle.v0.3+json"
	PayloadType     = "application/vnd.in-toto+json"
	StatementV1     = "https://in-toto.io/Statement/v1"
	StatementV01    = "https://in-toto.io/Statement/v0.1"
)

// sentinel is an error with a code for machine-readable results.
type sentinel struct {
	code   string
	text   string
	parent error
}

func (s *sentinel) Error() string { return s.text }
func (s *sentinel) Unwrap() error { return s.parent }

func refusal(code, text string) error { return &sentinel{code, text, ErrUnverified} }

// ErrUnverified is the parent of every refusal to believe a bundle.
var ErrUnverified error = &sentinel{"unverified", "not verified", nil}

// Refusals of a bundle.
var (
	ErrFormat        = refusal("bundle_format", "not a Sigstore bundle in the accepted form")
	ErrTooLarge      = refusal("bundle_size", "larger than its limit")
	ErrMediaType     = refusal("media_type", "other media type")
	ErrSignatures    = refusal("signature_count", "not exactly one signature")
	ErrUnknownKey    = refusal("unknown_key", "signed by a key that is not trusted")
	ErrPayloadType   = refusal("payload_type", "payload is not an in-toto statement")
	ErrSignature     = refusal("signature", "the signature does not fit")
	ErrStatement     = refusal("statement", "not an in-toto statement v1")
	ErrPredicateType = refusal("predicate_type", "other predicate type")
	ErrSubject       = refusal("subject", "other subject")
)

// Refusals of an engine's statement.
var (
	ErrNonce         = refusal("nonce", "other nonce: the statement answers another question, or is replayed")
	ErrContract      = refusal("contract", "the contract differs")
	ErrEngineVersion = refusal("engine_version", "the engine's version differs")
	ErrProcessStart  = refusal("process_start", "the engine process started at another time")
	ErrBootID        = refusal("boot_id", "the host was booted since")
	ErrPID           = refusal("pid", "another process serves")
	ErrStartTicks    = refusal("start_ticks", "another process has the engine's pid")
	ErrLaunch        = refusal("launch_digest", "the engine was launched differently")
	ErrDocument      = refusal("document", "not an attestation of the accepted form")
	ErrObservation   = refusal("observation", "the statement does not tell what its host shows of the process")
	ErrContainer     = refusal("container", "the engine runs in another container")
	ErrCheckpoint    = refusal("checkpoint", "the model's files differ")
	ErrTokenizer     = refusal("tokenizer", "the tokenizer's files differ")
	ErrEngineConfig  = refusal("engine_config", "the engine's command line, environment or configuration files differ")
	ErrUCXVersion    = refusal("ucx_version", "another version of UCX is loaded")
	ErrNIXLVersion   = refusal("nixl_version", "another version of NIXL is loaded")
	ErrTransports    = refusal("transports", "a resolved transport is gone")
	ErrGPUs          = refusal("gpus", "the engine has other GPUs open")
	ErrListener      = refusal("listener", "another process serves the engine's address")
	ErrChanged       = refusal("changed_since_start", "files of the model changed after the engine had started")
)

// Errors of callers.
var (
	// ErrPolicy says that a policy leaves a choice open.
	ErrPolicy = errors.New("policy is incomplete")
	// ErrPassphrase says that a private key needs a passphrase, or another one.
	ErrPassphrase = errors.New("passphrase missing or wrong")
)

// Code returns the code of the innermost refusal in err, "" for none.
func Code(err error) string {
	var s *sentinel
	if errors.As(err, &s) {
		return s.code
	}
	return ""
}

// Codes returns the codes of all refusals in a joined error, in order.
func Codes(err error) []string {
	if err == nil {
		return nil
	}
	if s, ok := err.(*sentinel); ok {
		return []string{s.code}
	}
	switch u := err.(type) {
	case interface{ Unwrap() []error }:
		var out []string
		for _, e := range u.Unwrap() {
			out = append(out, Codes(e)...)
		}
		return out
	case interface{ Unwrap() error }:
		return Codes(u.Unwrap())
	}
	return nil
}
