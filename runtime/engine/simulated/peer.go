package simulated

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/engine/simulated/core"
)

// errFatal is a list of blocks that a real core dies of.
var errFatal = errors.New("block list is shorter than the prompt")

// peers reads KV from other engines and tells them when it is done.
type peers struct {
	srv  *Server
	http *http.Client
	mu   sync.Mutex
	byID map[string]*peer
}

// peer is one producer process as this engine knows it.
type peer struct {
	turn  chan struct{} // held by whoever shakes hands
	known bool          // guarded by turn
	hello hello
}

// hello is what a producer says of itself.
type hello struct {
	EngineID  string `json:"engine_id"`
	Hash      string `json:"compatibility_hash"`
	BlockSize int    `json:"block_size"`
}

func newPeers(s *Server) *peers {
	return &peers{srv: s, byID: map[string]*peer{}, http: &http.Client{Transport: &http.Transport{
		DisableCompression: true, MaxIdleConnsPerHost: 8, IdleConnTimeout: 60 * time.Second,
	}}}
}

func (ps *peers) close() { ps.http.CloseIdleConnections() }

func base(o origin) string {
	return "http://" + net.JoinHostPort(o.Host, strconv.Itoa(o.Port))
}

func (ps *peers) get(o origin) *peer {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	key := base(o) + "/" + o.EngineID
	p := ps.byID[key]
	if p == nil {
		p = &peer{turn: make(chan struct{}, 1)}
		ps.byID[key] = p
	}
	return p
}

// meet shakes hands on first contact. Others wait for the one that does.
func (ps *peers) meet(ctx context.Context, o origin) (*peer, error) {
	if o.EngineID == ps.srv.id {
		return nil, errors.New("engine refuses itself as a peer")
	}
	p := ps.get(o)
	select {
	case p.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-p.turn }()
	if p.known {
		return p, nil
	}
	h, err := ps.handshake(ctx, o)
	if err != nil {
		return nil, err
	}
	switch {
	case h.EngineID != o.EngineID:
		return nil, errors.New("peer is another process")
	case h.Hash != ps.srv.compatibility():
		return nil, errors.New("peer is incompatible")
	case h.BlockSize > ps.srv.cfg.BlockSize:
		return nil, errors.New("peer has larger blocks")
	}
	p.hello, p.known = h, true
	return p, nil
}

// handshake asks until the limit, as a socket that connects by itself would.
func (ps *peers) handshake(ctx context.Context, o origin) (h hello, err error) {
	ctx, cancel := context.WithTimeout(ctx, ps.srv.cfg.HandshakeLimit.D())
	defer cancel()
	if err := sleep(ctx, core.Seconds(ps.srv.cfg.HandshakeS)); err != nil {
		return h, err
	}
	for {
		body, err := ps.post(ctx, o, "/hello", nil)
		if err == nil {
			return h, json.Unmarshal(body, &h)
		}
		if sleep(ctx, 50*time.Millisecond) != nil {
			return h, err
		}
	}
}

const maxRead = 256 << 20

func (ps *peers) post(ctx context.Context, o origin, path string, v any) ([]byte, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return ps.send(ctx, http.MethodPost, o, path, body)
}

// peerStatus is a peer's refusal.
type peerStatus int

func (e peerStatus) Error() string { return fmt.Sprintf("peer answered %d", int(e)) }

func (ps *peers) send(ctx context.Context, method string, o origin, path string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, base(o)+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	resp, err := ps.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	out, err := io.ReadAll(io.LimitReader(resp.Body, maxRead))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = peerStatus(resp.StatusCode)
	}
	return out, err
}

// forget makes the next contact a first one.
func (ps *peers) forget(o origin) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	delete(ps.byID, base(o)+"/"+o.EngineID)
}
