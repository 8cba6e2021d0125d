package main

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/narwhal-fleet/narwhal/attest"
	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/runtime/engine"
	"github.com/narwhal-fleet/narwhal/runtime/profile"
	"github.com/narwhal-fleet/narwhal/runtime/router"
)

// A sidecar that says nothing of use vouches for nobody, which is no word against the engine: such an
// engine stays out, and the start or the takeover of the others goes on.
func TestSidecarsThatSayNothing(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"an error":  func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "looking", http.StatusServiceUnavailable) },
		"a fault":   func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
		"nothing":   func(http.ResponseWriter, *http.Request) {},
		"an object": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}") },
		"too much": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, strings.Repeat(" ", attest.MaxResponse+1))
		},
		"a redirection": func(w http.ResponseWriter, q *http.Request) {
			http.Redirect(w, q, "/elsewhere", http.StatusTemporaryRedirect)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(answer)
			defer s.Close()
			f := fleet.Fleet{Engines: []fleet.Engine{{IID: "e", AttestationURL: s.URL}}}
			err := newSidecars(f).verify(t.Context(), profile.Row{IID: "e"}, engine.Identity{Version: "1", ProcessStart: 1})
			if !errors.Is(err, router.ErrUnvouched) || !strings.Contains(err.Error(), "engine e") {
				t.Errorf("%v", err)
			}
		})
	}
}
