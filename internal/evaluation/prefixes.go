package main

import (
	"fmt"
	"math/rand/v2"

	"github.com/narwhal-fleet/narwhal/runtime/simulate"
)

// conversations are turns whose prompts begin with what was said before: each family's head is
// nine tenths of a prompt of 4,000 tokens.
func conversations(families int, rate, span float64) (as []simulate.Arrival, hs []simulate.Head) {
	r := rand.New(rand.NewPCG(3, uint64(families)))
	as = flow(nil, r, 0, span, rate, 400, 60, "history")
	for i := range as {
		as[i].Input += 3600
		hs = append(hs, simulate.Head{Family: 1 + r.IntN(families), Tokens: 3600})
	}
	return as, hs
}

// prefixes is the section of caches of prompts.
func (e *evaluation) prefixes() (string, error) {
	c, err := e.load("chatdoc-100")
	if err != nil {
		return "", err
	}
	c.Arrivals, c.Heads = conversations(60, 24, 300)
	sizes := []int{0, 60_000, 120_000, 300_000}
	var columns []string
	for _, n := range sizes {
		columns = append(columns, fmt.Sprintf("%d tokens", n))
	}
	text, _, err := e.each("Cache of each engine", columns, func(i int) (string, simulate.Config) {
		d := c
		d.PrefixTokens = sizes[i]
		return "conversations, caches of " + columns[i], d
	})
	return "## Prompts that begin alike\n\n24 turns a second of 60 conversations for five minutes: prompts of about 3,800 tokens whose first 3,600 are those of their conversation, answers of about 60. An engine keeps heads of prompts, the least recently used goes; 60 of them are 216,000 tokens. " +
		"The router believes by its own index what an engine has, which begins with all of the engine's cache as its size and learns from answers that had less. The bound takes each head for kept.\n\n" + text, err
}
