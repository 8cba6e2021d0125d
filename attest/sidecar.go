package attest

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/narwhal-fleet/narwhal/attest/canonical"
	"github.com/narwhal-fleet/narwhal/attest/look"
)

// PredicateEngine is the predicate type of an engine's statement.
const PredicateEngine = "https://github.com/narwhal-fleet/narwhal/attest/engine/v1"

// EngineSubject names the attestation digest as a statement's subject.
const EngineSubject = "narwhal.attestation"

// Sidecar answers for one engine process. It is bound to the identity that it
// read first and answers 503 from the moment another process serves.
type Sidecar struct {
	doc      Document
	reader   IdentityReader
	signer   *Signer // nil = no statements
	bound    EngineIdentity
	response Response
	body     []byte
	slots    chan struct{}
	looker   Looker // nil = statements do not tell what the host shows
	looking  chan struct{}

	mu   sync.Mutex
	lost error // why the sidecar stopped answering for good, nil while it does
}

const (
	concurrentReads = 4
	readLimit       = 5 * time.Second
)

var errChanged = errors.New("the engine process changed")

// NewSidecar reads the live identity and refuses an engine of another version
// than the contract's. signer may be nil: then statements are not offered.
func NewSidecar(ctx context.Context, doc Document, reader IdentityReader, signer *Signer) (*Sidecar, error) {
	if err := doc.check(); err != nil {
		return nil, fmt.Errorf("start sidecar: %w: %w", ErrDocument, err)
	}
	ctx, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	id, err := reader.Identity(ctx)
	if err != nil {
		return nil, fmt.Errorf("start sidecar: %w", err)
	}
	if id.Version != doc.Contract.EngineVersion {
		return nil, fmt.Errorf("start sidecar: %w: it is %q, the contract says %q", ErrEngineVersion, clip(id.Version), clip(doc.Contract.EngineVersion))
	}
	resp, err := NewResponse(doc, id.Version, id.ProcessStart)
	if err != nil {
		return nil, fmt.Errorf("start sidecar: %w", err)
	}
	body, err := resp.JSON()
	if err != nil {
		return nil, fmt.Errorf("start sidecar: %w", err)
	}
	return &Sidecar{
		doc: doc, reader: reader, signer: signer, bound: id, response: resp, body: body,
		slots: make(chan struct{}, concurrentReads), looking: make(chan struct{}, 1),
	}, nil
}

// Response returns what the sidecar attests while its process lives.
func (s *Sidecar) Response() Response { return s.response }

// Handler serves GET /health, GET /v1/attestation and POST /v1/statement.
func (s *Sidecar) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, "application/json", []byte(`{"status":"ok"}`))
	})
	mux.HandleFunc("GET /v1/attestation", func(w http.ResponseWriter, r *http.Request) {
		if err := s.live(r.Context()); err != nil {
			problem(w, http.StatusServiceUnavailable, "engine_unavailable", err)
			return
		}
		answer(w, http.StatusOK, "application/json", s.body)
	})
	mux.HandleFunc("POST /v1/statement", s.statement)
	return mux
}

// live reads the identity again. A changed process ends this sidecar for good,
// an unreadable one only this request.
func (s *Sidecar) live(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	case <-ctx.Done():
		return ctx.Err()
	}
	s.mu.Lock()
	lost := s.lost
	s.mu.Unlock()
	if lost != nil {
		return lost
	}
	id, err := s.reader.Identity(ctx)
	if err != nil {
		return err
	}
	if id != s.bound {
		s.mu.Lock()
		s.lost = errChanged
		s.mu.Unlock()
		return errChanged
	}
	return nil
}

func (s *Sidecar) statement(w http.ResponseWriter, r *http.Request) {
	if s.signer == nil {
		problem(w, http.StatusNotFound, "no_key", errors.New("this sidecar has no signing key"))
		return
	}
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxRequest))
	if err != nil {
		problem(w, http.StatusRequestEntityTooLarge, "request_size", errors.New("the request is not readable within its limit"))
		return
	}
	nonce, err := parseNonce(raw)
	if err != nil {
		problem(w, http.StatusBadRequest, "bad_nonce", err)
		return
	}
	if err := s.live(r.Context()); err != nil {
		problem(w, http.StatusServiceUnavailable, "engine_unavailable", err)
		return
	}
	seen, err := s.look(r.Context())
	if err != nil {
		problem(w, http.StatusServiceUnavailable, lookCode(err), err)
		return
	}
	out, err := s.sign(nonce, seen)
	if err != nil {
		problem(w, http.StatusInternalServerError, "signing", errors.New("the statement could not be signed"))
		return
	}
	answer(w, http.StatusOK, BundleMediaType, out)
}

func parseNonce(raw []byte) (string, error) {
	tree, err := canonical.ParseObject(raw)
	if err != nil {
		return "", errors.New(`want {"nonce": hex}`)
	}
	nonce, ok := tree["nonce"].(string)
	if !ok || len(tree) != 1 {
		return "", errors.New(`want {"nonce": hex} and nothing else`)
	}
	return nonce, checkNonce(nonce)
}

func checkNonce(nonce string) error {
	b, err := hex.DecodeString(nonce)
	if err != nil || strings.ToLower(nonce) != nonce || len(b) < MinNonceBytes || len(b) > MaxNonceBytes {
		return fmt.Errorf("want a nonce of %d to %d bytes in lower-case hex", MinNonceBytes, MaxNonceBytes)
	}
	return nil
}

// enginePredicate is the signed answer to one nonce.
type enginePredicate struct {
	Nonce       string          `json:"nonce"`
	Attestation json.RawMessage `json:"attestation"` // contract, launch, engine: the response as served
	Process     *process        `json:"process,omitempty"`
	Observed    look.Observed   `json:"observed,omitempty"`
}

type process struct {
	PID        int    `json:"pid"`
	BootID     string `json:"boot_id"`
	StartTicks int64  `json:"start_ticks"`
}

func (s *Sidecar) sign(nonce string, seen look.Observed) ([]byte, error) {
	p := enginePredicate{Nonce: nonce, Attestation: s.body, Observed: seen}
	if s.bound.PID != 0 {
		p.Process = &process{PID: s.bound.PID, BootID: s.bound.BootID, StartTicks: s.bound.StartTicks}
	}
	text, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	return Sign(s.signer, Statement{
		Subject:       []Subject{SHA256Subject(EngineSubject, s.response.Digest)},
		PredicateType: PredicateEngine, Predicate: text,
	})
}

func answer(w http.ResponseWriter, status int, media string, body []byte) {
	w.Header().Set("Content-Type", media)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

func problem(w http.ResponseWriter, status int, code string, err error) {
	body, _ := json.Marshal(map[string]any{"error": map[string]string{"code": code, "message": clip(err.Error())}})
	answer(w, status, "application/json", body)
}
