package look

import (
	"context"
	"errors"
	"path"
	"slices"
	"time"
)

// tokenizerFiles are the names of files that a tokenizer is read from.
var tokenizerFiles = []string{
	"tokenizer.json", "tokenizer_config.json", "tokenizer.model", "tokenizer.model.v*", "vocab.json", "vocab.txt", "merges.txt", "spiece.model",
	"special_tokens_map.json", "added_tokens.json", "chat_template.jinja", "chat_template.json", "tekken.json", "*.tiktoken",
}

// model hashes the model's folder and says what changed in it since the process started.
func (o *Observer) model(ctx context.Context, pid int) Observed {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.watch.Model == "" {
		u := unknown("the launch names no folder of a model")
		return Observed{Checkpoint: u, Tokenizer: o.tokenizer(ctx, nil, u), Changed: u}
	}
	tree, err := o.files.tree(ctx, o.watch.Model)
	if err != nil {
		u := unknown("hash the model: %s", why(err))
		return Observed{Checkpoint: u, Tokenizer: o.tokenizer(ctx, nil, u), Changed: u}
	}
	out := Observed{Checkpoint: seen(digestOf(tree)), Tokenizer: o.tokenizer(ctx, tree, Seen{})}
	start, err := o.root.started(pid)
	if err != nil {
		out[Changed] = unknown("read when the process started: %s", why(err))
		return out
	}
	var changed []string
	for _, f := range tree {
		if f.changed().After(start.Add(startSlack)) && len(changed) < 16 {
			changed = append(changed, f.path)
		}
	}
	out[Changed] = seen(changed...)
	return out
}

// startSlack covers the coarse times of processes and files.
const startSlack = 2 * time.Second

func (o *Observer) tokenizer(ctx context.Context, tree []file, none Seen) Seen {
	if o.watch.Tokenizer != "" && o.watch.Tokenizer != o.watch.Model {
		var err error
		if tree, err = o.files.tree(ctx, o.watch.Tokenizer); err != nil {
			return unknown("hash the tokenizer: %s", why(err))
		}
	} else if tree == nil {
		return none
	}
	var of []file
	for _, f := range tree {
		if slices.ContainsFunc(tokenizerFiles, func(p string) bool { ok, _ := path.Match(p, f.path); return ok }) {
			of = append(of, f)
		}
	}
	if len(of) == 0 {
		return unknown("no file of a tokenizer in its folder")
	}
	return seen(digestOf(of))
}

// started is when a process started, by this host's clock.
func (r roots) started(pid int) (time.Time, error) {
	ticks, err := r.ticks(pid)
	if err != nil {
		return time.Time{}, err
	}
	up, err := r.uptime()
	if err != nil {
		return time.Time{}, err
	}
	return time.Now().Add(time.Duration(ticks)*time.Second/userHZ - up), nil
}

// userHZ is the unit of times in /proc on every Linux that Go runs on.
const userHZ = 100

var errUptime = errors.New("uptime is not readable")
