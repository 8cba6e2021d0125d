package standby

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/router/lease"
)

// probe returns the primary's document when everything about it is good. Its error is a
// miss, or a *VersionError.
func (s *Standby) probe(ctx context.Context) (Document, error) {
	if err := s.ready(ctx); err != nil {
		return Document{}, err
	}
	d, err := s.handoff(ctx)
	if err != nil {
		return Document{}, err
	}
	stored, err := s.look(ctx)
	if err != nil {
		return Document{}, err
	}
	if !stored.Is(lease.Term{Epoch: d.Epoch, Holder: d.Holder}) {
		return Document{}, errors.New("the lease names another holder or epoch than the handoff")
	}
	if stored.Expired(time.Now()) {
		return Document{}, errors.New("the primary's lease is over")
	}
	return d, nil
}

// ready is nil when the primary says that it controls the fleet, ready or not.
func (s *Standby) ready(ctx context.Context) error {
	status, b, err := s.get(ctx, "/ready", maxReady)
	if err != nil {
		return err
	}
	var doc struct {
		Control bool `json:"control_ready"`
	}
	if status != http.StatusOK && status != http.StatusServiceUnavailable {
		return fmt.Errorf("get /ready: status %d", status)
	}
	if err := json.Unmarshal(b, &doc); err != nil {
		return errors.New("get /ready: no JSON object")
	}
	if !doc.Control {
		return errors.New("get /ready: the primary does not control the fleet")
	}
	return nil
}

func (s *Standby) handoff(ctx context.Context) (Document, error) {
	status, b, err := s.get(ctx, "/narwhal/handoff", MaxDocument)
	if err != nil {
		return Document{}, err
	}
	if status != http.StatusOK {
		return Document{}, fmt.Errorf("get /narwhal/handoff: status %d", status)
	}
	return Decode(b)
}

func (s *Standby) look(ctx context.Context) (lease.Document, error) {
	ctx, cancel := context.WithTimeout(ctx, s.limit)
	defer cancel()
	return s.lease.Look(ctx)
}

// get reads one document of at most limit bytes, without following anything.
func (s *Standby) get(ctx context.Context, path string, limit int64) (int, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, s.limit)
	defer cancel()
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, s.base+path, nil)
	if err != nil {
		return 0, nil, fmt.Errorf("get %s: %w", path, err)
	}
	res, err := s.client.Do(q)
	if err != nil {
		return 0, nil, fmt.Errorf("get %s: %w", path, err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, limit+1))
	if err != nil {
		return 0, nil, fmt.Errorf("get %s: %w", path, err)
	}
	if int64(len(b)) > limit {
		return 0, nil, fmt.Errorf("get %s: more than %d bytes", path, limit)
	}
	return res.StatusCode, b, nil
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
	if d, err := s.handoff(ctx); err == nil && d.Epoch == s.doc.Epoch && d.Holder == s.doc.Holder {
		s.keep(d)
	}
	return true
}
