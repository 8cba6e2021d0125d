package simulated

import (
	"context"
	"encoding/binary"
	"errors"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/engine/simulated/core"
)

type readRequest struct {
	EngineID string `json:"engine_id"`
	Blocks   []int  `json:"blocks"`
}

// read returns the tokens of the peer's blocks. A frozen peer holds it without limit.
func (ps *peers) read(ctx context.Context, o origin, f core.Fetch) (contents [][]int32, err error) {
	p, err := ps.meet(ctx, o)
	if err != nil {
		return nil, err
	}
	if len(f.Blocks) < f.Missing {
		return nil, errFatal
	}
	began := time.Now()
	if contents, err = ps.blocks(ctx, o, f.Blocks, p.hello.BlockSize); err != nil {
		return nil, err
	}
	cfg := ps.srv.cfg.core()
	length := cfg.ReadTime(cfg.BytesPerBlock() * int64(len(f.Blocks)))
	return contents, sleep(ctx, length-time.Since(began))
}

// blocks reads the tokens of a peer's blocks of the given size. A failure makes the next contact
// a first one.
func (ps *peers) blocks(ctx context.Context, o origin, ids []int, size int) (contents [][]int32, err error) {
	body, err := ps.post(ctx, o, "/read", readRequest{o.EngineID, ids})
	if err != nil {
		ps.forget(o)
		return nil, err
	}
	if len(body) != 4*size*len(ids) {
		return nil, errors.New("peer answered with another number of blocks")
	}
	for len(body) > 0 {
		tokens := make([]int32, size)
		for i := range tokens {
			tokens[i] = int32(binary.LittleEndian.Uint32(body[4*i:]))
		}
		contents, body = append(contents, tokens), body[4*size:]
	}
	return contents, nil
}

// heartbeats extends a pin's lease while its KV is not read.
func (ps *peers) heartbeats(c *call) {
	t := time.NewTicker(max(time.Millisecond, ps.srv.cfg.core().Lease()/6))
	defer t.Stop()
	for {
		select {
		case <-c.ctx.Done():
			return
		case <-c.read:
			return
		case <-t.C:
			ctx, cancel := context.WithTimeout(c.ctx, 2*time.Second)
			_, _ = ps.post(ctx, c.p.transfer.from, "/heartbeat", c.p.transfer.from.RequestID)
			cancel()
		}
	}
}
