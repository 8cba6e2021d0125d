package fabric

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"
)

// A message is asked for with nine bytes: whether the tester takes it (0) or sends it (1),
// and its size. The tester answers a taken one with a byte.
const (
	messageTo   = 0
	messageFrom = 1
)

// curveSizes are those of a small block up to what a prompt's blocks come to. What a fleet's
// cache layout tells is measured beside them.
var curveSizes = []int64{64 << 10, 512 << 10, 4 << 20, 32 << 20}

// maxCurve sizes are taken of one request.
const maxCurve = 16

// sizesOf are the sizes of a curve, ascending: one block, the budget's payload, and the fixed
// ones. A size above maxMessage counts as that.
func sizesOf(b Budget) []int64 {
	out := slices.Clone(curveSizes)
	for _, n := range []int64{b.BytesPerBlock, b.Payload} {
		if n > 0 {
			out = append(out, min(n, maxMessage))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// curveFits tells of ascending sizes that the tester takes.
func curveFits(sizes []int64) bool {
	for i, n := range sizes {
		if n < 1 || n > maxMessage || i > 0 && n <= sizes[i-1] {
			return false
		}
	}
	return len(sizes) <= maxCurve
}

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
func (m *measuring) curve(ctx context.Context, way byte, sizes []int64, budget time.Duration) ([]Point, error) {
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
	for i, size := range sizes {
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
		if i+1 < len(sizes) && time.Now().Add(curveRepeats*longer(least, size, sizes[i+1])).After(limit) {
			break
		}
	}
	return out, nil
}

// longer is what a message of the next size takes at most, where one of this size takes that.
func longer(took time.Duration, size, next int64) time.Duration {
	return time.Duration(float64(took) * float64(next) / float64(size))
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
