package serve

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/narwhal-fleet/narwhal/internal/monitoring"
)

// answer reads a JSON document of bounded length.
func answer(ctx context.Context, who, base, path string, to any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+path, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("%s does not answer", who) // the address is the tunnel's local one
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxState+1))
	switch {
	case err != nil:
		return fmt.Errorf("%s broke its answer off", who)
	case resp.StatusCode != http.StatusOK:
		return fmt.Errorf("%s answers status %d to %s: %s", who, resp.StatusCode, path, clean(string(b), 200))
	case len(b) > maxState:
		return fmt.Errorf("%s answers more than %d bytes to %s", who, maxState, path)
	}
	if json.Unmarshal(b, to) != nil {
		return fmt.Errorf("%s answers %s with something else than its document", who, path)
	}
	return nil
}

const thePrometheus = "Prometheus"

func (w *Watched) askTargets(ctx context.Context, base string) error {
	for _, job := range []string{monitoring.RouterJob, monitoring.EnginesJob} {
		var doc struct {
			Data struct {
				ActiveTargets []struct {
					Labels    map[string]string `json:"labels"`
					ScrapeURL string            `json:"scrapeUrl"`
					LastError string            `json:"lastError"`
					Health    string            `json:"health"`
				} `json:"activeTargets"`
			} `json:"data"`
		}
		if err := answer(ctx, thePrometheus, base, "/api/v1/targets?state=active&scrapePool="+job, &doc); err != nil {
			return err
		}
		list := &w.Engines
		if job == monitoring.RouterJob {
			list = &w.Routers
		}
		for _, t := range doc.Data.ActiveTargets {
			if t.Labels["job"] != job || len(*list) == maxTargets {
				continue // older versions give every job
			}
			host := ""
			if u, err := url.Parse(t.ScrapeURL); err == nil {
				host = u.Host
			}
			*list = append(*list, WatchTarget{Address: clean(host, 300), IID: clean(t.Labels["iid"], 200), Health: clean(t.Health, 20), Error: clean(t.LastError, 300)})
		}
	}
	return nil
}

func (w *Watched) askReady(ctx context.Context, base string) error {
	var doc struct {
		Data struct {
			Result []struct {
				Metric map[string]string  `json:"metric"`
				Value  [2]json.RawMessage `json:"value"`
			} `json:"result"`
		} `json:"data"`
	}
	q := url.Values{"query": {`narwhal_router_ready{job="` + monitoring.RouterJob + `"}`}}
	if err := answer(ctx, thePrometheus, base, "/api/v1/query?"+q.Encode(), &doc); err != nil {
		return err
	}
	for _, r := range doc.Data.Result {
		var text string
		var value float64
		if json.Unmarshal(r.Value[1], &text) != nil || json.Unmarshal([]byte(text), &value) != nil || len(w.Ready) == maxTargets {
			continue
		}
		w.Ready[clean(r.Metric["instance"], 300)] = value
	}
	return nil
}

func (w *Watched) askRules(ctx context.Context, base string) error {
	var doc struct {
		Data struct {
			Groups []struct {
				Name  string `json:"name"`
				Rules []struct {
					Name   string `json:"name"`
					Health string `json:"health"`
				} `json:"rules"`
			} `json:"groups"`
		} `json:"data"`
	}
	if err := answer(ctx, thePrometheus, base, "/api/v1/rules?type=alert", &doc); err != nil {
		return err
	}
	for _, g := range doc.Data.Groups {
		for _, r := range g.Rules {
			if g.Name == monitoring.Group && len(w.Rules) < maxTargets {
				w.Rules[clean(r.Name, 200)] = clean(r.Health, 20)
			}
		}
	}
	return nil
}

func (w *Watched) askListed(ctx context.Context, router string) error {
	var groups []struct {
		Targets []string          `json:"targets"`
		Labels  map[string]string `json:"labels"`
	}
	if err := answer(ctx, "the router", router, "/narwhal/targets", &groups); err != nil {
		return err
	}
	for _, g := range groups {
		for _, t := range g.Targets {
			if len(w.Listed) < maxTargets {
				w.Listed = append(w.Listed, WatchTarget{Address: clean(t, 300), IID: clean(g.Labels["iid"], 200)})
			}
		}
	}
	return nil
}
