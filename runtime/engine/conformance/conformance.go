// Package conformance is the suite that every dialect and engine passes, real or simulated.
//
// It promises that a passing engine refuses what the recorded real engine refused, answers in
// the same shapes, streams what it would have answered in one piece, gives the same tokens
// split and unsplit, and frees what an aborted or finished request held. It refuses to judge
// speed, and it starts no engine itself.
package conformance

import (
	"context"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/engine"
)

// Target is a dialect with a way to get engines of it.
type Target struct {
	Dialect engine.Dialect
	// Model is the served name; it replaces the name in the recordings.
	Model string
	// Single starts an engine that nothing else uses, with a context of 2048 tokens.
	Single func(t *testing.T) *engine.Client
	// Pair starts two engines that may exchange KV; nil skips what needs a pair.
	Pair func(t *testing.T) (p, d *engine.Client)
	// Meet says where the prefilling engine of a pair is met; its room is not used. A dialect
	// whose legs run at once needs it.
	Meet func(t *testing.T, p *engine.Client) engine.Rendezvous
	// Within bounds one request; 0 = 20 s.
	Within time.Duration
	// Freed bounds the time until a finished or aborted request holds nothing; 0 = 10 s.
	Freed time.Duration
	// FirstID and LastID bound the token ids that prompts are made of.
	FirstID, LastID int
}

// Run runs the suite.
func Run(t *testing.T, target Target) {
	if target.Within == 0 {
		target.Within = 20 * time.Second
	}
	if target.Freed == 0 {
		target.Freed = 10 * time.Second
	}
	if target.LastID == 0 {
		target.FirstID, target.LastID = 300, 1999
	}
	s := &suite{target}
	t.Run("surface", s.surface)
	if s.Dialect.Concurrent() {
		t.Run("refusals", s.refusals)
	} else {
		t.Run("recorded", s.recorded)
	}
	t.Run("stream equals buffered", s.streamed)
	t.Run("abort frees", s.abort)
	if target.Pair == nil {
		return
	}
	t.Run("split equals unsplit", s.split)
	t.Run("split counters", s.counters)
	t.Run("split stream and chat", s.splitStream)
	t.Run("kv of another prompt", s.otherPrompt)
	if s.Dialect.Concurrent() {
		t.Run("recorded legs", s.recordedLegs)
		t.Run("nobody at the meeting's address", s.wrongAddress)
		t.Run("one leg alone", s.loneLegs)
		t.Run("aborted legs free both engines", s.abortPair)
		return
	}
	t.Run("handoff refused by its own engine", s.sameEngine)
	t.Run("handoff of an unknown process", s.unknownProcess)
	t.Run("handoff used after its blocks", s.recycled)
	t.Run("aborted decode frees the producer", s.abortSplit)
}

type suite struct{ Target }

func (s *suite) limit(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), s.Within)
	t.Cleanup(cancel)
	return ctx
}

// prompt returns n ids that no other salt gives.
func (s *suite) prompt(salt, n int) []int {
	ids := make([]int, n)
	x := uint64(salt)*0x9e3779b97f4a7c15 + 1
	for i := range ids {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		ids[i] = s.FirstID + int(x%uint64(s.LastID-s.FirstID+1))
	}
	return ids
}

func (s *suite) request(ids []int, tokens int) engine.CompletionRequest {
	return engine.CompletionRequest{Model: s.Model, PromptIDs: ids, MaxTokens: tokens, IgnoreEOS: true}
}

func (s *suite) complete(t *testing.T, c *engine.Client, r engine.CompletionRequest) engine.Completion {
	t.Helper()
	got, err := c.Complete(s.limit(t), r)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func (s *suite) state(t *testing.T, c *engine.Client) engine.State {
	t.Helper()
	m, err := c.Metrics(s.limit(t))
	if err != nil {
		t.Fatal(err)
	}
	st, err := s.Dialect.State(m)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// idle waits until an engine runs nothing and holds no more than the given share of its cache.
func (s *suite) idle(t *testing.T, c *engine.Client, usage float64) {
	t.Helper()
	end := time.Now().Add(s.Freed)
	for {
		st := s.state(t, c)
		if st.Running == 0 && st.Waiting == 0 && st.Usage <= usage {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("engine does not come to rest: %d running, %d waiting, cache %.4f, want at most %.4f",
				st.Running, st.Waiting, st.Usage, usage)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
