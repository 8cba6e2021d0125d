package bench

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
)

// Plan is one run against a router or an engine.
type Plan struct {
	URL      string // base, like http://127.0.0.1:8000
	Model    string
	Arrivals []Arrival
	// Speed plays the schedule faster than it stands; 0 = 1.
	Speed float64
	// Chat offers conversations instead of completions.
	Chat bool
	// Timeout of one request from its scheduled time; 0 = 10 minutes.
	Timeout time.Duration
	// MaxInFlight bounds open requests; an offer beyond it is recorded as not sent. 0 = 4096.
	MaxInFlight int
	// CharsPerToken sizes prompts; 0 = 4. Calibrate measures it.
	CharsPerToken float64
	// Tag makes request ids of this run unlike those of every other; "" = random.
	Tag string
	// Salt begins every prompt: equal salts and arrivals give equal prompts. "" = Tag, so
	// that no cache of an earlier run answers.
	Salt string
	// Key is sent as a bearer token; the zero value sends none.
	Key fleet.Secret
	// Concurrency is the number of clients of a closed loop: each takes the next arrival as
	// its last one ends, and that is when it is due. 0 = open loop, by the arrivals' times.
	Concurrency int
	// Until ends a closed loop: nothing begins after it. 0 = with the arrivals.
	Until time.Duration
	// Drain is how long open requests may go on after the context has ended.
	Drain time.Duration
	// Transport carries the requests; nil uses one of its own, without proxy.
	Transport http.RoundTripper
	// OnRow is told each row as it ends, from several goroutines.
	OnRow func(Row)
}

// Result is what the client saw: one row for each arrival, in their order.
type Result struct {
	Tag     string        `json:"tag"`
	Started time.Time     `json:"started"`
	Elapsed time.Duration `json:"elapsed"`
	Rows    []Row         `json:"rows"`
}

// Row is one offer by the client's clock. Times are seconds; At and what is measured from
// it refer to the scheduled moment.
type Row struct {
	Index     int     `json:"index"`
	Class     string  `json:"class"`
	At        float64 `json:"at_s"`
	Lag       float64 `json:"lag_s"` // scheduled to sent
	RID       string  `json:"rid"`   // x-request-id of the answer
	ClientRID string  `json:"client_rid"`
	Input     int     `json:"input"` // asked for
	Output    int     `json:"output"`
	Sent      bool    `json:"sent"`
	Status    int     `json:"status"`

	PromptTokens int      `json:"prompt_tokens"` // by usage
	OutputTokens int      `json:"output_tokens"` // by usage
	TTFT         *float64 `json:"ttft_s"`        // scheduled to first output
	TPOT         *float64 `json:"tpot_s"`        // first to last output over tokens − 1
	Duration     float64  `json:"duration_s"`
	Finish       string   `json:"finish_reason"`
	Completed    bool     `json:"completed"` // [DONE] after a natural end
	RetryAfter   string   `json:"retry_after,omitempty"`
	ErrorType    string   `json:"error_type,omitempty"`
	ErrorCode    string   `json:"error_code,omitempty"`
	Error        string   `json:"error,omitempty"`
	Outcome      string   `json:"outcome"`

	undue bool // its moment had not come when the run was ended
}

// Outcomes of an offer.
const (
	OutcomeCompleted    = "completed"
	OutcomeRefused      = "refused"
	OutcomeHTTP         = "http_error"
	OutcomeTimeout      = "timeout"
	OutcomeTransport    = "transport_error"
	OutcomeStream       = "invalid_stream"
	OutcomeScheduleMiss = "client_schedule_miss"
	OutcomeBrokenOff    = "broken_off" // by the end of the run
	OutcomeLost         = "lost"       // the load generator died with it
)

// Due drops the offers whose moment had not come when their run was ended.
func (r Result) Due() []Row {
	out := make([]Row, 0, len(r.Rows))
	for _, row := range r.Rows {
		if !row.undue {
			out = append(out, row)
		}
	}
	return out
}

type run struct {
	plan   Plan
	url    string
	client *http.Client
	start  time.Time
}

// CheckURL refuses what is no base URL to offer load to.
func CheckURL(s string) error {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return errors.New("offer load: want a URL like http://127.0.0.1:8000")
	}
	if u.User != nil {
		return errors.New("offer load: a URL with credentials would stand in the evidence")
	}
	return nil
}

func prepare(p Plan) (*run, error) {
	if err := CheckURL(p.URL); err != nil {
		return nil, err
	}
	if len(p.Arrivals) == 0 {
		return nil, errors.New("offer load: no arrivals")
	}
	if p.Speed <= 0 {
		p.Speed = 1
	}
	if p.Timeout <= 0 {
		p.Timeout = 10 * time.Minute
	}
	if p.MaxInFlight <= 0 {
		p.MaxInFlight = 4096
	}
	if p.CharsPerToken <= 0 {
		p.CharsPerToken = 4
	}
	if p.Tag == "" {
		var b [4]byte
		_, _ = rand.Read(b[:])
		p.Tag = hex.EncodeToString(b[:])
	}
	if p.Salt == "" {
		p.Salt = p.Tag
	}
	path := "/v1/completions"
	if p.Chat {
		path = "/v1/chat/completions"
	}
	rt := p.Transport
	if rt == nil {
		rt = &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: max(p.MaxInFlight, p.Concurrency), MaxIdleConns: max(p.MaxInFlight, p.Concurrency), IdleConnTimeout: 3 * time.Second}
	}
	return &run{plan: p, url: strings.TrimRight(p.URL, "/") + path, client: &http.Client{Transport: rt}}, nil
}

// Run offers the whole plan and waits for every answer. When ctx ends, nothing more is
// sent, open requests have Drain to end, and what was due later is recorded as not sent;
// the rows come back with ctx's error.
func Run(ctx context.Context, p Plan) (Result, error) {
	r, err := prepare(p)
	if err != nil {
		return Result{}, err
	}
	defer r.client.CloseIdleConnections()
	open, cancel := r.lasting(ctx)
	defer cancel()
	r.start = time.Now()
	var rows []Row
	if p.Concurrency > 0 {
		rows = r.closedLoop(ctx, open)
	} else {
		rows = r.openLoop(ctx, open)
	}
	res := Result{Tag: r.plan.Tag, Started: r.start, Elapsed: time.Since(r.start), Rows: rows}
	if err := ctx.Err(); err != nil {
		return res, fmt.Errorf("offer load: %w", err)
	}
	return res, nil
}

// lasting is ctx, and Drain longer.
func (r *run) lasting(ctx context.Context) (context.Context, context.CancelFunc) {
	if r.plan.Drain <= 0 {
		return context.WithCancel(ctx)
	}
	open, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		t := time.NewTimer(r.plan.Drain)
		defer t.Stop()
		select {
		case <-t.C:
			cancel()
		case <-open.Done():
		}
	})
	return open, func() { stop(); cancel() }
}

func (r *run) row(i int, due time.Duration) Row {
	a := r.plan.Arrivals[i]
	return Row{Index: i, Class: a.Class, At: due.Seconds(), Input: a.Input, Output: a.Output, ClientRID: fmt.Sprintf("%s-%d", r.plan.Tag, i)}
}

func (r *run) told(row Row) {
	if r.plan.OnRow != nil {
		r.plan.OnRow(row)
	}
}
