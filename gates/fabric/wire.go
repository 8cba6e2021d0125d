package fabric

import (
	"bufio"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"time"
)

// Limits of the tester.
const (
	toolName    = "narwhal-tcp/2"
	maxStreams  = 64
	maxLine     = 32 << 10
	chunk       = 256 << 10
	idleLimit   = 10 * time.Minute // a tester that nobody asks ends by itself
	maxOpen     = 8 * maxStreams   // connections at one time; more are closed at once
	maxRoute    = 128              // bytes kept of a route that the other end tells
	maxPhase    = 10 * time.Minute // of one transfer
	maxMessage  = 1 << 30          // bytes of one message of the curve
	maxTrain    = 4096             // datagrams of one train
	maxSessions = 256
	pings       = 20
	startLimit  = 10 * time.Second // for a tester to listen
	dialLimit   = 5 * time.Second  // for one connection
)

// control is one line of the control connection, either way.
//
//	open     begins a session; answered with what the tester's end sees
//	ping     answered at once
//	phase    makes a transfer ready: streams to the tester, pulls from it
//	stream   first line of a connection that carries bytes to the tester
//	pull     first line of a connection that carries bytes from it
//	go       begins the transfer
//	end      ends it; answered with what was counted
//	curve    first line of a connection for single messages
//	counters answered with the interface's counters
//	mtu      the tester looks for the largest datagram that reaches the asker
//	train    the tester sends datagrams to the asker
//	count    counts arriving datagrams from nothing
//	got      answered with the datagrams that came since
//	tool     starts a server of another tool, by its name in the tester's command line
type control struct {
	Op       string           `json:"op"`
	Token    string           `json:"token,omitempty"`
	Phase    int              `json:"phase,omitempty"`
	Streams  int              `json:"streams,omitempty"`
	Pulls    int              `json:"pulls,omitempty"`
	Skip     time.Duration    `json:"skip_ns,omitempty"`
	For      time.Duration    `json:"for_ns,omitempty"`
	End      *End             `json:"end,omitempty"`
	Counted  *counted         `json:"counted,omitempty"`
	Counters map[string]int64 `json:"counters,omitempty"`
	Count    int              `json:"count,omitempty"`
	Overrun  int              `json:"overrun,omitempty"`
	Pace     time.Duration    `json:"pace_ns,omitempty"`
	Tool     string           `json:"tool,omitempty"`
	Absent   bool             `json:"absent,omitempty"` // the tool is not installed
	Error    string           `json:"error,omitempty"`
}

// counted is what one end of a transfer saw.
type counted struct {
	Bytes   int64         `json:"bytes"` // received within the window
	Window  time.Duration `json:"window_ns"`
	Sent    tally         `json:"sent"`
	Streams int           `json:"streams"` // that took part
}

// tally is what the sockets of a sender say.
type tally struct {
	Bytes       int64 `json:"bytes"` // handed to the kernel
	Segments    int64 `json:"segments"`
	Retransmits int64 `json:"retransmits"`
}

func (t *tally) add(o tally) {
	t.Bytes, t.Segments, t.Retransmits = t.Bytes+o.Bytes, t.Segments+o.Segments, t.Retransmits+o.Retransmits
}

// newToken is a nonce of 128 bits: whoever does not hold it adds nothing to a sample.
func newToken() string {
	b := make([]byte, tokenBytes)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

const tokenBytes = 16

func readLine(r *bufio.Reader) (control, error) {
	b, err := r.ReadSlice('\n')
	if err != nil {
		return control{}, fmt.Errorf("read from the fabric tester: %w", err)
	}
	var c control
	if err := json.Unmarshal(b, &c); err != nil {
		return control{}, fmt.Errorf("read from the fabric tester: %w", err)
	}
	return c, nil
}

func writeLine(w io.Writer, c control) error {
	b, err := json.Marshal(c)
	if err != nil {
		return err
	}
	_, err = w.Write(append(b, '\n'))
	return err
}

// ask sends a line and reads the answer, which must be of the same operation.
func ask(c net.Conn, r *bufio.Reader, line control) (control, error) {
	if err := writeLine(c, line); err != nil {
		return control{}, fmt.Errorf("write to the fabric tester: %w", err)
	}
	answer, err := readLine(r)
	switch {
	case err != nil:
		return control{}, err
	case answer.Error != "":
		return control{}, fmt.Errorf("ask the fabric tester to %s: %s", line.Op, printable(answer.Error, 300))
	case answer.Op != line.Op:
		return control{}, fmt.Errorf("read from the fabric tester: asked %q, it answers %q", line.Op, printable(answer.Op, 32))
	}
	return answer, nil
}
