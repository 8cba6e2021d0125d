package simulated

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/engine/simulated/core"
)

// Ends of a meeting, as the two legs report them.
var (
	errNobodyCame = errors.New("no decoding leg came in time")
	errNotRead    = errors.New("kv was not taken in time")
	errNoKV       = errors.New("kv did not come in time")
	errTransfer   = errors.New("kv transfer failed")
	errPeerLost   = errors.New("prefilling process is lost")
)

// contact is a prefilling process as this one met it.
type contact struct {
	route
	at origin
}

// receive waits for the other leg's KV. Once the room was claimed only the time limit, the
// peer's loss or the client end it.
func (s *Server) receive(c *call, f core.Fetch) ([][]int32, error) {
	ctx, cancel := context.WithTimeoutCause(c.legs, s.cfg.RendezvousTimeout.D(), errNoKV)
	defer cancel()
	ctx, lost := context.WithCancelCause(ctx)
	defer lost(nil)
	peer, o, err := s.meet(ctx, c.p.meet, lost)
	if err != nil {
		return nil, err
	}
	if len(o.Blocks) < f.Missing {
		return nil, errors.New("peer sent fewer pages than the prompt has")
	}
	began := time.Now()
	contents, err := s.peers.blocks(ctx, peer.at, o.Blocks[len(o.Blocks)-f.Missing:], peer.PageSize)
	if err != nil {
		return nil, err
	}
	c.cached = o.Cached
	c.sum = o.Sum
	cfg := s.cfg.core()
	length := cfg.ReadTime(cfg.BytesPerBlock() * int64(len(contents)))
	return contents, sleep(ctx, length-time.Since(began))
}

// meet finds the prefilling process and waits for its offer. Where another process answers at
// the address of a known one, it is met anew.
func (s *Server) meet(ctx context.Context, m *meeting, lost context.CancelCauseFunc) (contact, offer, error) {
	for {
		peer, err := s.contact(ctx, m)
		if err != nil {
			return peer, offer{}, err
		}
		beat, stop := context.WithCancel(ctx)
		s.run(func() { s.heartbeat(beat, peer.at, lost) })
		o, err := s.claimRoom(ctx, peer, m.Room)
		stop()
		if err != peerStatus(http.StatusConflict) {
			return peer, o, err
		}
		s.forget(peer.at)
	}
}

func (s *Server) forget(at origin) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pair.known, base(at))
}

// claimRoom waits for the room's KV. A broken connection says nothing: the heartbeat decides.
func (s *Server) claimRoom(ctx context.Context, peer contact, id uint64) (offer, error) {
	var o offer
	body, err := s.peers.post(ctx, peer.at, "/claim", claim{id, peer.EngineID, peer.Epoch})
	if err == peerStatus(http.StatusConflict) {
		return o, err
	}
	if err != nil {
		if r, e := s.askRoute(ctx, peer.at); e == nil && r.EngineID != peer.EngineID {
			return o, peerStatus(http.StatusConflict)
		}
		<-ctx.Done()
		return o, context.Cause(ctx)
	}
	if err := json.Unmarshal(body, &o); err != nil || len(o.Blocks) == 0 {
		return o, errors.New("peer offers no pages")
	}
	return o, nil
}

// contact meets a prefilling process once.
func (s *Server) contact(ctx context.Context, m *meeting) (contact, error) {
	at := origin{Host: m.Host, Port: m.Port}
	key := base(at)
	s.mu.Lock()
	known, ok := s.pair.known[key]
	s.mu.Unlock()
	if ok {
		return known, nil
	}
	r, err := s.firstContact(ctx, at)
	if err != nil {
		return contact{}, err
	}
	if err := r.fits(s); err != nil {
		return contact{}, err
	}
	known = contact{r, at}
	known.at.EngineID = r.EngineID
	s.mu.Lock()
	s.pair.known[key] = known
	s.mu.Unlock()
	return known, nil
}

// firstContact asks until the limit, as long as no rank is registered.
func (s *Server) firstContact(ctx context.Context, at origin) (route, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.HandshakeLimit.D())
	defer cancel()
	if err := sleep(ctx, core.Seconds(s.cfg.HandshakeS)); err != nil {
		return route{}, err
	}
	for {
		r, err := s.askRoute(ctx, at)
		if err == nil {
			return r, nil
		}
		if sleep(ctx, 50*time.Millisecond) != nil {
			return route{}, err
		}
	}
}

func (s *Server) askRoute(ctx context.Context, at origin) (r route, err error) {
	query := strings.Join(ranks, "=-1&") + "=-1"
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	body, err := s.peers.send(ctx, http.MethodGet, at, "/route?"+query, nil)
	if err != nil {
		return r, err
	}
	return r, json.Unmarshal(body, &r)
}

// heartbeat looks after the peer until the wait ends.
func (s *Server) heartbeat(ctx context.Context, at origin, lost context.CancelCauseFunc) {
	t := time.NewTicker(s.cfg.HeartbeatInterval.D())
	defer t.Stop()
	for misses := 0; misses < 2; {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		if s.pass(ctx) != nil {
			return
		}
		beat, cancel := context.WithTimeout(ctx, min(3*time.Second, s.cfg.HeartbeatInterval.D()))
		_, err := s.peers.send(beat, http.MethodGet, at, "/health", nil)
		cancel()
		if err == nil {
			misses = 0
		} else {
			misses++
		}
	}
	s.forget(at)
	lost(errPeerLost)
}

// report tells the prefilling side how the read ended.
func (s *Server) report(m *meeting, failed bool) {
	s.run(func() {
		ctx, cancel := context.WithTimeout(s.life, 5*time.Second)
		defer cancel()
		if _, err := s.peers.post(ctx, origin{Host: m.Host, Port: m.Port}, "/outcome", outcome{m.Room, failed}); err != nil {
			s.with(func(time.Time) { s.core.Stats.FailedNotices++ })
		}
	})
}
