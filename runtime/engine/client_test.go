package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
)

func serve(t *testing.T, opt Options, routes map[string]http.HandlerFunc) *Client {
	t.Helper()
	mux := http.NewServeMux()
	for p, f := range routes {
		mux.HandleFunc(p, f)
	}
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	c, err := NewClient(srv.URL+"/", opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func say(s string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, s) }
}

func TestNewClientRefusesURLs(t *testing.T) {
	for _, u := range []string{"", "localhost:8000", "ftp://h", "http://", "http://u:p@h", "http://h?x=1", "://"} {
		if _, err := NewClient(u, Options{}); err == nil {
			t.Errorf("%q accepted", u)
		} else if strings.Contains(err.Error(), "u:p") {
			t.Errorf("error shows a password: %v", err)
		}
	}
}

func TestDoSendsWhatALegNeeds(t *testing.T) {
	var got *http.Request
	var body []byte
	c := serve(t, Options{Key: fleet.NewSecret("k-1")}, map[string]http.HandlerFunc{"/v1/completions": func(w http.ResponseWriter, r *http.Request) {
		got = r
		body, _ = io.ReadAll(r.Body)
		w.WriteHeader(http.StatusTeapot)
	}})
	resp, err := c.Do(t.Context(), "/v1/completions", []byte(`{"a": 1}`), "id-7")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusTeapot || string(body) != `{"a": 1}` || got.Header.Get("Authorization") != "Bearer k-1" ||
		got.Header.Get("X-Request-Id") != "id-7" || got.Header.Get("Content-Type") != "application/json" {
		t.Fatalf("%+v %s", got.Header, body)
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	c := serve(t, Options{Key: fleet.NewSecret("k")}, map[string]http.HandlerFunc{
		"/health": func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/other", http.StatusFound) },
		"/other":  func(http.ResponseWriter, *http.Request) { t.Error("key taken elsewhere") },
	})
	var se *StatusError
	if err := c.Health(t.Context()); !errors.As(err, &se) || se.Status != http.StatusFound {
		t.Fatal(err)
	}
}

func TestTypedErrors(t *testing.T) {
	c := serve(t, Options{MaxAnswer: 100}, map[string]http.HandlerFunc{
		"/health": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) },
		"/v1/completions": func(w http.ResponseWriter, r *http.Request) {
			b, _ := io.ReadAll(r.Body)
			switch {
			case strings.Contains(string(b), `"prompt":"big"`):
				_, _ = io.WriteString(w, strings.Repeat("x", 1000))
			case strings.Contains(string(b), `"prompt":"empty"`):
				_, _ = io.WriteString(w, `{"choices":[]}`)
			default:
				w.WriteHeader(400)
				_, _ = io.WriteString(w, `{"error":{"message":"no","type":"BadRequestError","param":"p","code":400}}`)
			}
		},
		"/version": say(`{}`), "/metrics": say("a 1\n"),
	})
	var se *StatusError
	if err := c.Health(t.Context()); !errors.As(err, &se) || se.Status != 503 || se.Busy() {
		t.Fatal(err)
	}
	if _, err := c.Complete(t.Context(), CompletionRequest{Prompt: "x"}); !errors.As(err, &se) || se.Type != TypeBadRequest || !se.Client() || se.Param != "p" {
		t.Fatal(err)
	}
	var big *TooLargeError
	if _, err := c.Complete(t.Context(), CompletionRequest{Prompt: "big"}); !errors.As(err, &big) {
		t.Fatal(err)
	}
	if _, err := c.Complete(t.Context(), CompletionRequest{Prompt: "empty"}); err == nil {
		t.Fatal("an answer without choice passed")
	}
	if _, err := c.Version(t.Context()); err == nil {
		t.Fatal("an engine without version passed")
	}
}

func TestIdentityNeedsProcessStart(t *testing.T) {
	text := "a 1\n"
	c := serve(t, Options{}, map[string]http.HandlerFunc{"/version": say(`{"version":"1.2"}`),
		"/metrics": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }})
	var me *MissingError
	if _, err := c.Identity(t.Context()); !errors.As(err, &me) {
		t.Fatal(err)
	}
	text = "process_start_time_seconds 1.79597177175e+09\n"
	a, err := c.Identity(t.Context())
	if err != nil || a.Version != "1.2" || a.ProcessStart != 1.79597177175e9 {
		t.Fatal(a, err)
	}
	text = "process_start_time_seconds 1.79597177275e+09\n"
	if b, err := c.Identity(t.Context()); err != nil || a.Same(b) || !a.Same(a) {
		t.Fatal(b, err)
	}
	var le *MissingError
	if _, err := c.CacheLayout(t.Context()); !errors.As(err, &le) {
		t.Fatal(err)
	}
}

func TestFrozenEngineIsEndedByTheContext(t *testing.T) {
	c := serve(t, Options{}, map[string]http.HandlerFunc{"/health": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := c.Health(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
}

func TestSecretsStayOut(t *testing.T) {
	c, err := NewClient("http://127.0.0.1:1", Options{Key: fleet.NewSecret("hush")})
	if err != nil {
		t.Fatal(err)
	}
	err = c.Health(t.Context())
	if s := fmt.Sprintf("%v %+v %+v", err, c, *c); strings.Contains(s, "hush") {
		t.Fatal(s)
	}
}
