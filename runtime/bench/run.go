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
	"sync"
	"time"
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
	// Tag makes prompts and request ids of this run unlike those of every other; "" = random.
	Tag string
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
}

type run struct {
	plan   Plan
	url    string
	client *http.Client
	start  time.Time
}

func prepare(p Plan) (*run, error) {
	u, err := url.Parse(p.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, errors.New("offer load: want a URL like http://127.0.0.1:8000")
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
	path := "/v1/completions"
	if p.Chat {
		path = "/v1/chat/completions"
	}
	rt := p.Transport
	if rt == nil {
		rt = &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: p.MaxInFlight, MaxIdleConns: p.MaxInFlight, IdleConnTimeout: 3 * time.Second}
	}
	return &run{plan: p, url: strings.TrimRight(u.String(), "/") + path, client: &http.Client{Transport: rt}}, nil
}

// Run offers the whole plan and waits for every answer. When ctx ends, open requests are
// broken off and what was due later is recorded as not sent; the rows come back with
// ctx's error.
func Run(ctx context.Context, p Plan) (Result, error) {
	r, err := prepare(p)
	if err != nil {
		return Result{}, err
	}
	defer r.client.CloseIdleConnections()
	rows := make([]Row, len(r.plan.Arrivals))
	seats := make(chan struct{}, r.plan.MaxInFlight)
	var open sync.WaitGroup
	r.start = time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	<-timer.C
	for i, a := range r.plan.Arrivals {
		row := &rows[i]
		due := time.Duration(float64(a.At) / r.plan.Speed)
		*row = Row{Index: i, Class: a.Class, At: due.Seconds(), Input: a.Input, Output: a.Output, ClientRID: fmt.Sprintf("%s-%d", r.plan.Tag, i)}
		if ctx.Err() == nil {
			timer.Reset(time.Until(r.start.Add(due)))
			select {
			case <-timer.C:
			case <-ctx.Done():
			}
		}
		if ctx.Err() != nil {
			row.Error = "not sent: the run was ended"
			continue
		}
		select {
		case seats <- struct{}{}:
			open.Go(func() {
				defer func() { <-seats }()
				r.offer(ctx, row, r.start.Add(due))
				if r.plan.OnRow != nil {
					r.plan.OnRow(*row)
				}
			})
		default:
			row.Error = "not sent: the load generator's own limit"
		}
	}
	open.Wait()
	res := Result{Tag: r.plan.Tag, Started: r.start, Elapsed: time.Since(r.start), Rows: rows}
	if err := ctx.Err(); err != nil {
		return res, fmt.Errorf("offer load: %w", err)
	}
	return res, nil
}

// words are ordinary lower-case text for a tokenizer to bite on.
var words = strings.Fields("the grey whale turned under the ice and came up far from where the boats had been waiting since morning with their nets still dry")

// prompt is about tokens long and unlike every other prompt from its first characters on,
// so that no cache answers for the engine.
func (r *run) prompt(index, tokens int) string {
	want := int(float64(tokens) * r.plan.CharsPerToken)
	var b strings.Builder
	fmt.Fprintf(&b, "%s %d ", r.plan.Tag, index)
	for i := index; b.Len() < want; i++ {
		b.WriteString(words[(i*7+index)%len(words)])
		b.WriteByte(' ')
	}
	s := b.String()
	if want > 8 && len(s) > want {
		s = s[:want]
	}
	return s
}
