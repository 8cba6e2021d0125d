package engine

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
)

// Refusals of the half of the contract that a dialect does not have.
var (
	// ErrSerial is Pair's answer where leg 2 needs the handoff of leg 1.
	ErrSerial = errors.New("legs run one after the other")
	// ErrConcurrent is Prefill's answer, and Decode's with a handoff, where both legs run at once.
	ErrConcurrent = errors.New("legs run at once and pass no handoff")
)

// Rendezvous is where and under which number the two legs of one attempt meet. It is used once:
// a retry draws a new room.
type Rendezvous struct {
	// Host and Port of the prefilling engine's bootstrap server.
	Host string
	Port int
	// Room is random in [0, 2^63); see NewRoom.
	Room uint64
}

// NewRoom draws a room. The source never fails.
func NewRoom() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // ends the program rather than fail
	return binary.LittleEndian.Uint64(b[:]) >> 1
}

// Meeter is implemented by concurrent dialects.
type Meeter interface {
	// Meet tells where a prefilling engine awaits its peers; Room is not set.
	Meet(ctx context.Context, c *Client) (Rendezvous, error)
}
