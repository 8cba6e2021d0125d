package simulated

import (
	"crypto/subtle"
	"net/http"
	"strings"
)

// authorized asks for the bearer key on /v1 routes only, as the real engine does.
func (s *Server) authorized(r *http.Request) bool {
	if s.cfg.APIKey.Empty() || !strings.HasPrefix(r.URL.Path, "/v1/") {
		return true
	}
	got, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	return ok && subtle.ConstantTimeCompare([]byte(got), []byte(s.cfg.APIKey.Reveal())) == 1
}
