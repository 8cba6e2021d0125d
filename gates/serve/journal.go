package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/runtime/journal"
)

// Journal holds the router's rows of the trial.
type Journal struct {
	Tags []string      `json:"tags"`
	Rows []journal.Row `json:"rows"`
}

const (
	maxJournal = 256 << 20
	settleWait = 10 * time.Second // for rows that the router is still writing
)

// journalRows reads the router's journal until every answered request of the trial has
// its row, or the wait is over: what is missing then is a finding.
func journalRows(ctx context.Context, env gates.Env, _ json.RawMessage) ([]byte, error) {
	v := env.View()
	var t Trial
	if err := v.Decode(trialKey, &t); err != nil {
		return nil, err
	}
	out := Journal{}
	want := 0
	for _, p := range t.Points {
		out.Tags = append(out.Tags, p.Tag)
		for _, r := range p.Rows {
			if r.RID != "" {
				want++
			}
		}
	}
	host := v.Fleet.Deploy.Router.Host
	h, err := env.Host(ctx, host)
	if err != nil {
		return nil, err
	}
	file := path.Join(v.Fleet.Deploy.Hosts[host].Root, "router", "journal.jsonl")
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for until := time.Now().Add(settleWait); ; {
		b, err := h.Get(ctx, file, maxJournal)
		if err != nil {
			return nil, fmt.Errorf("read the router's journal: %w", err)
		}
		if out.Rows, err = rowsOf(b, out.Tags); err != nil {
			return nil, err
		}
		if len(out.Rows) >= want || time.Now().After(until) {
			return json.Marshal(out)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-tick.C:
		}
	}
}

// rowsOf picks the rows whose client request id begins with one of the tags.
func rowsOf(b []byte, tags []string) ([]journal.Row, error) {
	all, _, err := journal.ReadRows(bytes.NewReader(b))
	if err != nil {
		return nil, fmt.Errorf("read the router's journal: %w", err)
	}
	rows := []journal.Row{}
	for _, r := range all {
		if r.ClientRID == nil {
			continue
		}
		for _, tag := range tags {
			if strings.HasPrefix(*r.ClientRID, tag+"-") {
				rows = append(rows, r)
				break
			}
		}
	}
	return rows, nil
}
