package router

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// faucet is a connection whose body comes in pieces, each after a wait, under read deadlines.
type faucet struct {
	http.ResponseWriter
	pieces   []piece
	deadline chan time.Time
	until    time.Time
}

type piece struct {
	after time.Duration
	bytes int
}

func newFaucet(pieces ...piece) *faucet {
	return &faucet{ResponseWriter: httptest.NewRecorder(), pieces: pieces, deadline: make(chan time.Time, 64)}
}

func (f *faucet) SetReadDeadline(t time.Time) error { f.deadline <- t; return nil }

func (f *faucet) Read(b []byte) (int, error) {
	for {
		select {
		case f.until = <-f.deadline:
			continue
		default:
		}
		if len(f.pieces) == 0 {
			return 0, io.EOF
		}
		p := &f.pieces[0]
		timer := time.NewTimer(p.after)
		limit := time.NewTimer(max(0, time.Until(f.until)))
		began := time.Now()
		select {
		case <-limit.C:
			return 0, os.ErrDeadlineExceeded
		case f.until = <-f.deadline:
			p.after = max(0, p.after-time.Since(began))
			continue
		case <-timer.C:
		}
		p.after = 0
		n := min(len(b), p.bytes)
		if p.bytes -= n; p.bytes == 0 {
			f.pieces = f.pieces[1:]
		}
		return n, nil
	}
}

func (f *faucet) intake(declared int64) intake {
	return intake{out: http.NewResponseController(f), src: f, declared: declared, most: 4 << 20, whole: time.Minute, patience: 10 * time.Second}
}

func TestBodiesHaveALeastSpeed(t *testing.T) {
	second := func(n, size int) (list []piece) {
		for range n {
			list = append(list, piece{time.Second, size})
		}
		return list
	}
	for _, c := range []struct {
		name   string
		pieces []piece
		want   error
		took   time.Duration
	}{
		{"at once", []piece{{0, 3 << 20}}, nil, 0},
		{"steady", second(50, 2<<10), nil, 50 * time.Second},
		{"too slow", second(50, 900), os.ErrDeadlineExceeded, 10 * time.Second},
		{"stops", append(second(5, 4<<10), piece{time.Hour, 1}), os.ErrDeadlineExceeded, 13 * time.Second},
		{"nothing", []piece{{time.Hour, 1}}, os.ErrDeadlineExceeded, 10 * time.Second},
		{"small and within the patience", []piece{{9 * time.Second, 10}}, nil, 9 * time.Second},
		{"fast, and longer than all may take", second(100, 20<<10), os.ErrDeadlineExceeded, time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newBodies(8 << 20)
				start := time.Now()
				b, err := m.read(context.Background(), newFaucet(c.pieces...).intake(4<<20))
				if !errors.Is(err, c.want) || time.Since(start) != c.took {
					t.Errorf("%v after %v, want %v after %v", err, time.Since(start), c.want, c.took)
				}
				b.drop()
				b.drop()
				if m.bytesHeld() != 0 || len(m.arriving) != 0 {
					t.Errorf("%d bytes held, %d arriving", m.bytesHeld(), len(m.arriving))
				}
			})
		})
	}
}

// What is only announced holds nothing; what stands still yields to a newcomer; what moves does
// not.
func TestBodiesShareTheirMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newBodies(1 << 20)
		ended := make(chan error, 3)
		read := func(f *faucet, declared int64) {
			go func() {
				b, err := m.read(context.Background(), f.intake(declared))
				ended <- err
				b.drop()
			}()
			synctest.Wait()
		}
		read(newFaucet(piece{5 * time.Second, 1}), 4<<20)
		if held := m.bytesHeld(); held != firstBuffer {
			t.Fatalf("an announcement holds %d bytes", held)
		}
		read(newFaucet(piece{0, 700 << 10}, piece{time.Hour, 1}), 700<<10+1)
		b, err := m.read(context.Background(), newFaucet(piece{0, 700 << 10}).intake(700<<10))
		b.drop()
		if !errors.Is(err, errBodyMemory) {
			t.Fatalf("while the others move: %v", err)
		}
		time.Sleep(2 * time.Second)
		b, err = m.read(context.Background(), newFaucet(piece{0, 700 << 10}).intake(700<<10))
		if err != nil || len(b.bytes) != 700<<10 {
			t.Fatalf("while the others stand still: %v", err)
		}
		if err := <-ended; !errors.Is(err, errBodySlow) {
			t.Fatalf("who yields is told %v", err)
		}
		b.drop()
		<-ended
		synctest.Wait()
		if m.bytesHeld() != 0 {
			t.Errorf("%d bytes held in the end", m.bytesHeld())
		}
	})
}

func TestBodiesOfEverySizeAreReadWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newBodies(64 << 20)
		for _, n := range []int{0, 1, firstBuffer - 1, firstBuffer, firstBuffer + 1, bufferGrowth*firstBuffer + 1, 1 << 20, 4<<20 - 1, 4 << 20, 4<<20 + 1} {
			for _, declared := range []int64{-1, int64(n)} {
				var pieces []piece
				if n > 0 {
					pieces = []piece{{0, n}}
				}
				b, err := m.read(context.Background(), newFaucet(pieces...).intake(declared))
				if n > 4<<20 {
					if !errors.Is(err, errBodyLarge) {
						t.Errorf("%d bytes: %v", n, err)
					}
				} else if err != nil || len(b.bytes) != n || declared > firstBuffer && cap(b.bytes) != n {
					t.Errorf("%d bytes, declared %d: %d of %d, %v", n, declared, len(b.bytes), cap(b.bytes), err)
				}
				if b.drop(); m.bytesHeld() != 0 {
					t.Fatalf("%d bytes: %d are held", n, m.bytesHeld())
				}
			}
		}
	})
}
