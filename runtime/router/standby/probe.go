package standby

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/router/lease"
)

// handed is a document as the primary gave it.
type handed struct {
	Document
	at     time.Time // when its writer was well
	passed bool      // the primary is a standby itself and passes on what it follows
}

// probe returns the primary's document when everything about it is good. Its error is a
// miss, or a *VersionError.
func (s *Standby) probe(ctx context.Context) (handed, error) {
	controls, err := s.ready(ctx)
	if err != nil {
		return handed{}, err
	}
	h, err := s.handoff(ctx)
	if err != nil {
		return handed{}, err
	}
	if !controls && !h.passed {
		return handed{}, errors.New("get /ready: the primary does not control the fleet")
	}
	stored, err := s.look(ctx)
	if err != nil {
		return handed{}, err
	}
	if !stored.Is(lease.Term{Epoch: h.Epoch, Holder: h.Holder}) {
		return handed{}, errors.New("the lease names another holder or epoch than the handoff")
	}
	if stored.Expired(time.Now()) {
		return handed{}, errors.New("the primary's lease is over")
	}
	return h, nil
}

// ready tells whether the primary says that it controls the fleet, ready or not.
func (s *Standby) ready(ctx context.Context) (controls bool, err error) {
	a, err := s.get(ctx, "/ready", maxReady)
	if err != nil {
		return false, err
	}
	var doc struct {
		Control bool `json:"control_ready"`
	}
	if a.status != http.StatusOK && a.status != http.StatusServiceUnavailable {
		return false, fmt.Errorf("get /ready: status %d", a.status)
	}
	if err := json.Unmarshal(a.body, &doc); err != nil {
		return false, errors.New("get /ready: no JSON object")
	}
	return doc.Control, nil
}

func (s *Standby) handoff(ctx context.Context) (handed, error) {
	asked := time.Now()
	a, err := s.get(ctx, "/narwhal/handoff", MaxDocument)
	if err != nil {
		return handed{}, err
	}
	if a.status != http.StatusOK {
		return handed{}, fmt.Errorf("get /narwhal/handoff: status %d", a.status)
	}
	d, err := Decode(a.body)
	if err != nil || a.age == "" {
		return handed{Document: d, at: time.Now()}, err
	}
	age, err := strconv.ParseFloat(a.age, 64)
	if err != nil || !moment(age) {
		return handed{}, errors.New("get /narwhal/handoff: " + AgeHeader + " is no number of seconds")
	}
	return handed{Document: d, at: asked.Add(-time.Duration(min(age, longestAge) * float64(time.Second))), passed: true}, nil
}

func (s *Standby) look(ctx context.Context) (lease.Document, error) {
	ctx, cancel := context.WithTimeout(ctx, s.limit)
	defer cancel()
	return s.lease.Look(ctx)
}

// longestAge bounds what a standby says of a document's age, in seconds.
const longestAge = 1e6

type answer struct {
	status int
	age    string
	body   []byte
}

// kept is the value of KeptHeader.
func (s *Standby) kept() string {
	if s.doc == nil {
		return s.name + " 0 0"
	}
	return s.name + " " + strconv.FormatInt(s.doc.Epoch, 10) + " " + strconv.FormatFloat(s.doc.At, 'f', -1, 64)
}

// get reads one document of at most limit bytes, without following anything.
func (s *Standby) get(ctx context.Context, path string, limit int64) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, s.limit)
	defer cancel()
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, s.base+path, nil)
	if err != nil {
		return answer{}, fmt.Errorf("get %s: %w", path, err)
	}
	q.Header.Set(KeptHeader, s.kept())
	res, err := s.client.Do(q)
	if err != nil {
		return answer{}, fmt.Errorf("get %s: %w", path, err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, limit+1))
	if err != nil {
		return answer{}, fmt.Errorf("get %s: %w", path, err)
	}
	if int64(len(b)) > limit {
		return answer{}, fmt.Errorf("get %s: more than %d bytes", path, limit)
	}
	return answer{res.StatusCode, res.Header.Get(AgeHeader), b}, nil
}

// over reports, after a miss, whether the term of the last document has ended in the
// store: then its holder serves no more, whatever it answers. The holder may have a last
// document, with the counters of its end.
func (s *Standby) over(ctx context.Context) bool {
	if s.doc == nil {
		return false
	}
	stored, err := s.look(ctx)
	term := lease.Term{Epoch: s.doc.Epoch, Holder: s.doc.Holder}
	if err != nil || stored.Stored() && !(stored.Is(term) && stored.Expired(time.Now())) {
		return false
	}
	if h, err := s.handoff(ctx); err == nil && !h.passed && h.Epoch == s.doc.Epoch && h.Holder == s.doc.Holder && s.local.Fits(h.Document) == nil {
		s.keep(h)
	}
	return true
}
