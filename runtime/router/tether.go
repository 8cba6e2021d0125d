package router

import (
	"context"
	"errors"
	"sync"
)

// errEngineGone ends the legs of an engine whose process does not answer any more: a dead
// engine may leave its streams open and silent for ever.
var errEngineGone = errors.New("engine is gone: its port refuses probes")

// tether ends the legs of one engine together. The zero value is not usable.
type tether struct {
	mu    sync.Mutex
	alive context.Context
	cut   context.CancelFunc
}

func newTether() *tether {
	t := &tether{}
	t.alive, t.cut = context.WithCancel(context.Background())
	return t
}

// tie lets end be called when the engine is found gone; the result unties.
func (t *tether) tie(end context.CancelCauseFunc) (untie func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	stop := context.AfterFunc(t.alive, func() { end(errEngineGone) })
	return func() { stop() }
}

// end ends every leg that is tied, and is ready for those of the engine's next process.
func (t *tether) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cut()
	t.alive, t.cut = context.WithCancel(context.Background())
}
