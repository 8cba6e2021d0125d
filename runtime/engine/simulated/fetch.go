package simulated

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/engine/simulated/core"
)

// fetch reads a sequence's remote KV and gives it, or the failure, to the core.
func (s *Server) fetch(c *call, seq *core.Seq, f core.Fetch) {
	began := time.Now()
	var contents [][]int32
	err := errors.New("injected read failure")
	if !s.takeRead(c.p.transfer.from.Port) {
		contents, err = s.peers.read(c.ctx, c.p.transfer.from, f)
	}
	if c.ctx.Err() != nil {
		return // aborted: the call tells the producer
	}
	if errors.Is(err, errFatal) {
		s.with(func(time.Time) { s.die() })
		return
	}
	if err == nil && s.takeFault(faultWrongBlock) {
		slices.Reverse(contents)
		contents[0][0]++
	}
	s.countRead(f, err, time.Since(began))
	s.fetchDone(seq, contents, err)
	if err == nil || s.cfg.Recompute {
		c.readOnce.Do(func() { close(c.read) })
	}
	switch {
	case err != nil:
		c.told.Store(true) // a failed read tells nobody: the lease runs out
	case s.takeFault(faultNotice):
		c.told.Store(true)
	default:
		s.tell(c)
	}
}

func (s *Server) countRead(f core.Fetch, err error, took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := &s.core.Stats
	if err != nil {
		st.FailedTransfers++
		return
	}
	st.Transfer.Observe(took.Seconds())
	st.Post.Observe(0)
	st.Bytes.Observe(float64(s.cfg.core().BytesPerBlock() * int64(f.Missing)))
	st.Descriptors.Observe(float64(f.Missing * s.cfg.Layers))
}

// tell lets the producer free its blocks, once a call.
func (s *Server) tell(c *call) {
	t := c.p.transfer
	if !t.take || t.hangs || t.dies || c.told.Swap(true) {
		return
	}
	s.run(func() {
		ctx, cancel := context.WithTimeout(s.life, 5*time.Second)
		defer cancel()
		if _, err := s.peers.post(ctx, t.from, "/notice", t.from.RequestID); err != nil {
			s.with(func(time.Time) { s.core.Stats.FailedNotices++ })
		}
	})
}

// compatibility is equal on engines that may exchange KV. Like the real one it leaves out the
// block size.
func (s *Server) compatibility() string {
	c := s.cfg
	h := fnv.New64a()
	fmt.Fprintln(h, c.EngineVersion, c.Root, c.Layers, c.KVHeads, c.HeadSize, c.ElementBytes)
	return fmt.Sprintf("%016x", h.Sum64())
}
