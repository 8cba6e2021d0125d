package serve

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/narwhal-fleet/narwhal/runtime/journal"
)

// standIn is a router in front of one engine: it counts, tells its state and keeps a journal.
type standIn struct {
	t      *testing.T
	engine string // base URL
	// cut, when set, breaks off the request of this number.
	cut func(number int)

	mu      sync.Mutex
	number  int
	inside  int
	stuck   int // requests that never end
	served  int
	failed  int
	journal strings.Builder
}

func newStandIn(t *testing.T, engine string) *standIn {
	s := &standIn{t: t, engine: "http://" + engine}
	fmt.Fprintf(&s.journal, `{"meta":{"schema":%q,"schema_version":%d}}`+"\n", journal.Schema, journal.Version)
	return s
}

func (s *standIn) written() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return []byte(s.journal.String())
}

func (s *standIn) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if host, _, _ := strings.Cut(r.Host, ":"); host != "127.0.0.1" { // as a router on loopback does
		w.WriteHeader(http.StatusMisdirectedRequest)
		return
	}
	switch r.URL.Path {
	case "/metrics":
		s.mu.Lock()
		defer s.mu.Unlock()
		fmt.Fprintf(w, "narwhal_offered_total %d\nnarwhal_served_total %d\nnarwhal_failed_total %d\nnarwhal_flips_total 0\n", s.served+s.failed, s.served, s.failed)
	case "/narwhal/state":
		s.mu.Lock()
		defer s.mu.Unlock()
		fmt.Fprintf(w, `{"schema":"narwhal.state","journal_run":"run-1","serving":{"http_retained":%d},"pools":{"prefill":["p0"],"decode":["d0","stranger"]}}`, s.inside+s.stuck)
	case "/v1/models":
		fmt.Fprint(w, `{"object":"list","data":[{"id":"tiny"}]}`)
	case "/v1/completions":
		s.complete(w, r)
	default:
		fmt.Fprint(w, `{}`)
	}
}

// complete passes a request on, whole, and writes its row.
func (s *standIn) complete(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.number++
	n := s.number
	s.inside++
	s.mu.Unlock()
	client, rid := r.Header.Get("X-Request-Id"), fmt.Sprint("r-", n)
	row := journal.Row{Head: journal.Head{Schema: journal.Schema, Version: journal.Version, Run: "run-1"}, RID: rid, ClientRID: &client, Status: ptr(http.StatusOK), Terminal: journal.Failed}
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.inside--; row.Terminal == journal.Completed {
			s.served++
		} else {
			s.failed++
		}
		line, err := json.Marshal(row)
		if err != nil {
			s.t.Error(err)
		}
		s.journal.Write(append(line, '\n'))
	}()
	if s.cut != nil {
		s.cut(n)
	}
	body, err := s.ask(r)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	row.Terminal, row.OutputLen = journal.Completed, ptr(4)
	w.Header().Set("X-Request-Id", rid)
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = w.Write(body)
}

func (s *standIn) ask(r *http.Request) ([]byte, error) {
	req, err := http.NewRequestWithContext(r.Context(), r.Method, s.engine+r.URL.Path, r.Body)
	if err != nil {
		return nil, err
	}
	req.Header = r.Header.Clone()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return io.ReadAll(resp.Body)
}
