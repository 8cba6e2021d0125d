package pause

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		if !For(t.Context(), time.Minute) || time.Since(begin) != time.Minute {
			t.Errorf("waited %v", time.Since(begin))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if begin = time.Now(); For(ctx, time.Minute) || time.Since(begin) != time.Second {
			t.Errorf("waited %v beyond its context", time.Since(begin))
		}
	})
}
