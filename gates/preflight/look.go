package preflight

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/engine"
	"github.com/narwhal-fleet/narwhal/runtime/engine/sglang"
	"github.com/narwhal-fleet/narwhal/runtime/engine/vllm"
)

// LookRequest asks what an engine says of itself, and for its pace.
type LookRequest struct {
	IID     string `json:"iid"`
	URL     string `json:"url"`
	Dialect string `json:"dialect"`
	Model   string `json:"model"`
	Seed    uint64 `json:"seed"`
	// PaceTokens is the prompt length of the pace probe, 0 for none.
	PaceTokens int `json:"pace_tokens"`
	// Peer answers with an engine that has a role, nil for none.
	Peer *PeerAt `json:"peer,omitempty"`
	// Key names the variable that holds the engines' key, "" for none.
	Key string `json:"key,omitempty"`
}

// Looked is what one engine answered. What could not be asked stands in Failed, by check.
type Looked struct {
	IID     string            `json:"iid"`
	Failed  map[string]string `json:"failed"`
	Version string            `json:"version"`
	Started float64           `json:"process_start"`
	Models  []string          `json:"models"`
	Root    string            `json:"model_path"`
	Context int               `json:"max_model_len"`
	Block   int               `json:"block_size"`
	Dtype   string            `json:"cache_dtype"`
	// Tokens of a fixed text: their count and the SHA-256 of their ids.
	Tokens      int    `json:"tokens"`
	TokenDigest string `json:"token_ids_sha256"`
	// Pace are seconds of cold prefills of PaceTokens tokens.
	PaceTokens int       `json:"pace_tokens"`
	Pace       []float64 `json:"pace_s"`
}

// Checks of a look, as they stand in Failed.
const (
	checkReach    = "reach"
	checkReady    = "ready"
	checkIdentity = "identity"
	checkModel    = "model"
	checkLayout   = "layout"
	checkTokenize = "tokenize"
	checkPace     = "pace"
)

const (
	reachWithin = 5 * time.Second
	paceRuns    = 3
	mostPace    = 15   // runs where other work of the machine keeps them apart
	paceAgrees  = 0.10 // by which the two quickest may differ
	longText    = 300  // bytes of an error kept
)

// fixedText is tokenized by every engine: words, digits, marks and other scripts.
const fixedText = "The quick brown fox: 0123456789 + 3.14e-7\n\tdéjà vu, Größe, Ω≈ç√, 東京タワー, пример, 🦊🦊 <|x|> {\"a\": [1, 2]}"

// proberOf is what a dialect knows of asking its engines.
func proberOf(name string) (engine.Dialect, error) {
	switch name {
	case "vllm":
		return vllm.New(), nil
	case "sglang":
		return sglang.New(), nil
	}
	return nil, fmt.Errorf("look at an engine: dialect %q is unknown", name)
}

// look asks one engine everything that is compared between engines. It fails only when it
// cannot ask at all; an engine that does not answer is evidence.
func look(ctx context.Context, q LookRequest) (Looked, error) {
	out := Looked{IID: q.IID, Failed: map[string]string{}, PaceTokens: q.PaceTokens}
	d, err := proberOf(q.Dialect)
	if err != nil {
		return out, err
	}
	c, err := engine.NewClient(q.URL, keyed(q.Key))
	if err != nil {
		return out, err
	}
	defer c.Close()
	failed := func(check string, err error) bool {
		if err != nil {
			out.Failed[check] = engine.Printable(err.Error(), longText)
		}
		return err != nil
	}
	rctx, cancel := context.WithTimeout(ctx, reachWithin)
	defer cancel()
	if failed(checkReach, c.Health(rctx)) {
		return out, nil
	}
	failed(checkReady, d.Ready(rctx, c))
	id, err := d.Identity(ctx, c)
	failed(checkIdentity, err)
	out.Version, out.Started = engine.Printable(id.Version, 64), id.ProcessStart
	models, err := c.Models(ctx)
	failed(checkModel, err)
	for _, m := range models {
		out.Models = append(out.Models, engine.Printable(m.ID, 128))
		if m.ID == q.Model {
			out.Root, out.Context = engine.Printable(m.Root, 256), m.MaxModelLen
		}
	}
	layout, err := d.Layout(ctx, c)
	failed(checkLayout, err)
	out.Block, out.Dtype = layout.BlockSize, layout.Dtype
	failed(checkTokenize, out.tokenize(ctx, c, q.Model))
	if q.PaceTokens > 0 && slices.Contains(out.Models, q.Model) && out.Tokens > 0 {
		failed(checkPace, out.pace(ctx, d, q))
	}
	return out, nil
}

func (l *Looked) tokenize(ctx context.Context, c *engine.Client, model string) error {
	t, err := c.Tokenize(ctx, engine.TokenizeRequest{Model: model, Prompt: fixedText})
	if err != nil {
		return err
	}
	if len(t.IDs) == 0 {
		return errors.New("the tokenizer counts nothing in a text")
	}
	b, err := json.Marshal(t.IDs)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(b)
	l.Tokens, l.TokenDigest = len(t.IDs), hex.EncodeToString(sum[:])
	return nil
}

// pace times cold prefills; the quickest counts, since other work only makes them longer.
func (l *Looked) pace(ctx context.Context, d engine.Dialect, q LookRequest) (err error) {
	p, err := newProber(ctx, q.URL, q.Model, q.Key, q.Seed)
	if err != nil {
		return err
	}
	defer p.client.Close()
	done, err := p.withPeer(ctx, d, q.Peer, q.Key)
	defer func() { err = errors.Join(err, done()) }()
	if err != nil {
		return err
	}
	l.PaceTokens = min(q.PaceTokens, p.limit-1)
	if _, err := p.prefill(ctx, l.PaceTokens); err != nil { // the first may compile
		return err
	}
	for len(l.Pace) < paceRuns || len(l.Pace) < mostPace && !l.settled() {
		s, err := p.prefill(ctx, l.PaceTokens)
		if err != nil {
			return err
		}
		l.Pace = append(l.Pace, s.Seconds)
	}
	return nil
}

// settled reports whether the two quickest paces agree: one alone may be the least of what other
// work of the machine made of it.
func (l Looked) settled() bool {
	v := slices.Sorted(slices.Values(l.Pace))
	return len(v) > 1 && v[1] <= (1+paceAgrees)*v[0]
}

// best is the quickest pace, 0 for none.
func (l Looked) best() float64 {
	if len(l.Pace) == 0 {
		return 0
	}
	return slices.Min(l.Pace)
}
