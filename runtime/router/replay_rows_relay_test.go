package router

import (
	"bufio"
	"net/http"
	"strings"
	"testing"
)

// Frames pass while everything else stands still: placement, accounts, metrics and journal
// have another goroutine, which no frame waits for.
func TestRow01FramesPassABusyOwner(t *testing.T) {
	b := startBed(t, 1, 1, quick())
	q, err := http.NewRequestWithContext(limit(t), http.MethodPost, b.url+"/v1/completions", strings.NewReader(`{"model":"`+modelName+`","prompt":"a long way","max_tokens":300,"ignore_eos":true,"stream":true}`))
	if err != nil {
		t.Fatal(err)
	}
	a, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	frames := bufio.NewScanner(a.Body)
	next := func(n int) {
		t.Helper()
		for n > 0 && frames.Scan() {
			if strings.HasPrefix(frames.Text(), "data: {") {
				n--
			}
		}
		if n > 0 {
			t.Fatalf("%d frames are missing: %v", n, frames.Err())
		}
	}
	next(2)
	held, release := make(chan struct{}), make(chan struct{})
	go b.router.own.do(func() { close(held); <-release })
	<-held
	next(200)
	close(release)
	next(98)
}

// A relayed frame costs the router no allocation, whatever runs beside it.
func TestRow01FramesAllocateNothing(t *testing.T) {
	rel := relayToNobody(t)
	if n := testing.AllocsPerRun(1000, func() {
		if f := rel.read(benchFrame); f != nil {
			t.Fatal(f)
		}
	}); n > 0 {
		t.Errorf("%g allocations a frame", n)
	}
}
