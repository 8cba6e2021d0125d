package fabric

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// A message is asked for with nine bytes: whether the tester takes it (0) or sends it (1),
// and its size. The tester answers a taken one with a byte.
const (
	messageTo   = 0
	messageFrom = 1
)

// curveSizes are those of a small block up to what a prompt's blocks come to. Larger
// payloads follow from the law of the curve.
var curveSizes = []int64{64 << 10, 512 << 10, 4 << 20, 32 << 20}

const curveRepeats = 3

// answerMessages serves one curve connection.
func answerMessages(c net.Conn, r *bufio.Reader) {
	head := make([]byte, 9)
	buf := make([]byte, chunk)
	for {
		if _, err := io.ReadFull(r, head); err != nil {
			return
		}
		n := int64(binary.BigEndian.Uint64(head[1:]))
		if n < 1 || n > maxMessage || head[0] > messageFrom {
			return
		}
		if head[0] == messageTo {
			if _, err := io.CopyN(io.Discard, r, n); err != nil {
				return
			}
			n = 1
		}
		if writeBytes(c, buf, n) != nil {
			return
		}
	}
}

func writeBytes(c net.Conn, buf []byte, n int64) error {
	for n > 0 {
		w, err := c.Write(buf[:min(n, int64(len(buf)))])
		if err != nil {
			return err
		}
		n -= int64(w)
	}
	return nil
}

// curve measures the least time of single messages by size, as long as the budget of time
// lasts; at least one size.
func (m *measuring) curve(ctx context.Context, way byte, budget time.Duration) ([]Point, error) {
	c, r, err := m.attach(ctx, control{Op: "curve", Token: m.token})
	if err != nil {
		return nil, err
	}
	defer abandon(c)
	defer context.AfterFunc(ctx, func() { abandon(c) })()
	limit := time.Now().Add(budget)
	_ = c.SetDeadline(limit.Add(curveGrace))
	var out []Point
	buf := make([]byte, chunk)
	for _, size := range curveSizes {
		least := time.Duration(0)
		for range curveRepeats {
			took, err := oneMessage(c, r, buf, way, size)
			if err != nil {
				var timeout net.Error
				if len(out) > 0 && errors.As(err, &timeout) && timeout.Timeout() {
					return out, nil
				}
				return out, fmt.Errorf("send one message of %d bytes: %w", size, err)
			}
			if least == 0 || took < least {
				least = took
			}
		}
		out = append(out, Point{Bytes: size, Seconds: least.Seconds()})
		// The next size takes at most eight times as long, three times.
		if time.Now().Add(8 * curveRepeats * least).After(limit) {
			break
		}
	}
	return out, nil
}

// curveGrace is for the first size on a slow link.
const curveGrace = 5 * time.Second

func oneMessage(c net.Conn, r *bufio.Reader, buf []byte, way byte, size int64) (time.Duration, error) {
	head := binary.BigEndian.AppendUint64([]byte{way}, uint64(size))
	begin := time.Now()
	if _, err := c.Write(head); err != nil {
		return 0, err
	}
	back := size
	if way == messageTo {
		if err := writeBytes(c, buf, size); err != nil {
			return 0, err
		}
		back = 1
	}
	if _, err := io.CopyN(io.Discard, r, back); err != nil {
		return 0, err
	}
	return time.Since(begin), nil
}
