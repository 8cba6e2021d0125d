package standby

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/router/lease"
)

func TestFollows(t *testing.T) {
	inBubble(t, nil, func(w *world) {
		w.after(5*time.Minute, "store")
		w.cancel()
		if _, err := w.end(); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// TestKilledPrimary: the lease is free with the process, as with the file's proof. No
// probe interval passes.
func TestKilledPrimary(t *testing.T) {
	inBubble(t, nil, func(w *world) {
		w.stopRenewing()
		w.store.Put(lease.Make("router-a:0", 1, time.Now(), 0))
		w.kill()
		gap, err := w.end()
		if err != nil || gap > 20*time.Millisecond || w.opened.Term().Epoch != 2 || !w.opened.Valid() {
			t.Errorf("opened after %v: %v, %+v", gap, err, w.opened)
		}
		w.after(0, "store", "apply", "verify", "open")
		if w.applied.Counters.Served != 7 {
			t.Errorf("applied %+v", w.applied)
		}
	})
}

// TestKernelTakesItsTime frees the lease some milliseconds after the connection ended.
func TestKernelTakesItsTime(t *testing.T) {
	inBubble(t, nil, func(w *world) {
		w.stopRenewing()
		w.kill()
		time.AfterFunc(30*time.Millisecond, func() { w.store.Put(lease.Make("router-a:0", 1, time.Now(), 0)) })
		if gap, err := w.end(); err != nil || gap > 70*time.Millisecond {
			t.Errorf("opened after %v: %v", gap, err)
		}
		w.after(0, "store", "block "+BlockHeld, "apply", "verify", "block ", "open")
	})
}

// TestKilledWithoutProof waits for the expiry, as for a holder on another host.
func TestKilledWithoutProof(t *testing.T) {
	inBubble(t, nil, func(w *world) {
		w.stopRenewing()
		w.kill()
		if gap, err := w.end(); err != nil || gap < ttl-every || gap > ttl+DefaultInterval {
			t.Errorf("opened after %v: %v", gap, err)
		}
	})
}

// TestCutOffPrimary keeps its lease and so keeps serving.
func TestCutOffPrimary(t *testing.T) {
	for name, cut := range map[string]func(w *world){
		"slow":    func(w *world) { w.use(func(_ http.ResponseWriter, q *http.Request) { <-q.Context().Done() }) },
		"refused": func(w *world) { w.kill() },
		"errors":  func(w *world) { w.use(func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(500) }) },
		"rubbish": func(w *world) {
			w.use(func(rw http.ResponseWriter, _ *http.Request) { _, _ = rw.Write([]byte("<html>")) })
		},
		"endless": func(w *world) {
			w.use(func(rw http.ResponseWriter, _ *http.Request) {
				_, _ = rw.Write(bytes.Repeat([]byte(" "), MaxDocument+2))
			})
		},
		"elsewhere": func(w *world) {
			w.use(func(rw http.ResponseWriter, q *http.Request) {
				http.Redirect(rw, q, "http://router-a:8000"+q.URL.Path, http.StatusTemporaryRedirect)
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(w *world) {
				cut(w)
				w.after(time.Minute, "store", "block "+BlockHeld, "block "+BlockNoFresh)
				if !w.keeper.Valid() {
					t.Error("the primary lost its lease")
				}
			})
		})
	}
}

// TestMisses: a primary that hangs, and renews no more, is given its misses and its lease.
func TestMisses(t *testing.T) {
	inBubble(t, func(w *world) { w.options.MaxAge = time.Hour }, func(w *world) {
		w.use(func(_ http.ResponseWriter, q *http.Request) { <-q.Context().Done() })
		w.after(3*DefaultInterval-time.Millisecond, "store")
		w.after(2*DefaultInterval, "store", "block "+BlockHeld)
		w.use(w.serve)
		w.after(2*DefaultInterval, "store", "block "+BlockHeld, "store", "block ", "store")
	})
}

// TestRow20DegradedPrimary stops renewing, so that its standby may claim.
func TestRow20DegradedPrimary(t *testing.T) {
	inBubble(t, nil, func(w *world) {
		w.control.Store(false)
		w.stopRenewing()
		if gap, err := w.end(); err != nil || gap > ttl+DefaultInterval {
			t.Errorf("opened after %v: %v", gap, err)
		}
	})
}

// TestPlannedHandover needs no misses, and takes the counters of the primary's end.
func TestPlannedHandover(t *testing.T) {
	inBubble(t, nil, func(w *world) {
		w.doc.Counters.Served = 9
		w.control.Store(false)
		if err := w.keeper.Release(w.t.Context()); err != nil {
			t.Fatal(err)
		}
		gap, err := w.end()
		if err != nil || gap > DefaultInterval || w.applied.Counters.Served != 9 {
			t.Errorf("opened after %v: %v, %d served", gap, err, w.applied.Counters.Served)
		}
	})
}

func TestOtherVersionIsFatal(t *testing.T) {
	inBubble(t, nil, func(w *world) {
		w.use(func(rw http.ResponseWriter, q *http.Request) {
			if q.URL.Path == "/ready" {
				w.serve(rw, q)
				return
			}
			_, _ = rw.Write([]byte(`{"schema": "narwhal.handoff", "schema_version": 2}`))
		})
		_, err := w.end()
		var version *VersionError
		if !errors.As(err, &version) || !version.Newer {
			t.Error(err)
		}
		w.after(0, "store", "block handoff version 2 is newer than 1, which this router reads")
	})
}

func TestNeverSeen(t *testing.T) {
	inBubble(t, func(w *world) { w.control.Store(false) }, func(w *world) {
		w.stopRenewing()
		w.kill()
		before := w.store.Operations()
		w.after(time.Minute, "block "+BlockNoFresh)
		if w.store.Operations() != before {
			t.Error("claimed without a document")
		}
	})
}

// TestDocumentOfAnotherHolder is no good probe.
func TestDocumentOfAnotherHolder(t *testing.T) {
	inBubble(t, func(w *world) { w.doc.Holder = "router-x:0" }, func(w *world) { w.after(0, "block "+BlockNoFresh) })
}

func TestOldDocument(t *testing.T) {
	inBubble(t, func(w *world) { w.options.MaxAge = 2 * time.Second }, func(w *world) {
		w.stopRenewing()
		w.kill()
		w.after(ttl+Unwanted*every-time.Second, "store", "block "+BlockHeld, "block "+BlockNoFresh)
		if _, err := w.end(); err != nil || w.opened.Term().Epoch != 2 { // better than nobody
			t.Errorf("%v, %+v", err, w.opened.Term())
		}
	})
}

// TestAnotherCameFirst: its epoch lies between, so the document is of the past. It serves when
// nobody has wanted the lease for a while.
func TestAnotherCameFirst(t *testing.T) {
	inBubble(t, nil, func(w *world) {
		w.stopRenewing()
		w.store.Put(lease.Make("router-c:0", 2, time.Now(), 0))
		w.kill()
		w.after(Unwanted*every-time.Second, "store", "block handoff epoch 1 cannot precede claimed epoch 3")
		if d, _ := w.own.Look(w.t.Context()); d.Epoch != 3 || !d.Expired(time.Now()) {
			t.Errorf("left %+v", d)
		}
		if _, err := w.end(); err != nil || w.opened.Term().Epoch != 4 || w.applied.Epoch != 1 {
			t.Errorf("%v, opened %+v with the handoff of epoch %d", err, w.opened.Term(), w.applied.Epoch)
		}
	})
}

// TestOthersGoOn: a standby whose primary is of the past waits for as long as others serve.
func TestOthersGoOn(t *testing.T) {
	inBubble(t, nil, func(w *world) {
		w.stopRenewing()
		w.store.Put(lease.Make("router-c:0", 2, time.Now(), 0))
		w.kill()
		w.after(2*time.Second, "store", "block handoff epoch 1 cannot precede claimed epoch 3")
		w.store.Put(lease.Make("router-d:0", 4, time.Now(), time.Hour))
		w.after(time.Minute, "store", "block handoff epoch 1 cannot precede claimed epoch 3")
		w.store.Put(lease.Make("router-d:0", 4, time.Now(), 0))
		if after, err := w.end(); err != nil || after < Unwanted*every || w.opened.Term().Epoch != 6 {
			t.Errorf("%v after %v, %+v", err, after, w.opened.Term())
		}
	})
}

func TestRefusedDocument(t *testing.T) {
	inBubble(t, func(w *world) { w.apply = func(context.Context) error { return errTest } }, func(w *world) {
		w.stopRenewing()
		w.store.Put(lease.Make("router-a:0", 1, time.Now(), 0))
		w.kill()
		w.after(time.Minute, "store", "apply", "block "+errTest.Error())
		if d, _ := w.own.Look(w.t.Context()); d.Epoch != 2 || !d.Expired(time.Now()) {
			t.Errorf("left %+v", d)
		}
	})
}

// TestVerifiesAgain: epochs that this router gave back do not count as another's.
func TestVerifiesAgain(t *testing.T) {
	tries := 0
	inBubble(t, func(w *world) {
		w.verify = func(context.Context) error {
			if tries++; tries < 3 {
				return errTest
			}
			return nil
		}
	}, func(w *world) {
		w.stopRenewing()
		w.store.Put(lease.Make("router-a:0", 1, time.Now(), 0))
		w.kill()
		if gap, err := w.end(); err != nil || gap > 2*time.Second || w.opened.Term().Epoch != 4 {
			t.Errorf("opened after %v: %v, %+v", gap, err, w.opened.Term())
		}
		w.after(0, "store", "apply", "verify", "block "+errTest.Error(), "apply", "verify", "apply", "verify", "block ", "open")
	})
}

// TestLeaseEndsMeanwhile breaks the store while the local router works.
func TestLeaseEndsMeanwhile(t *testing.T) {
	for text, at := range map[string]func(w *world, hang func(context.Context) error){
		BlockApplying: func(w *world, hang func(context.Context) error) { w.apply = hang },
		BlockVerify:   func(w *world, hang func(context.Context) error) { w.verify = hang },
	} {
		inBubble(t, nil, func(w *world) {
			at(w, func(ctx context.Context) error {
				w.store.Break(errors.New("disk is full"))
				<-ctx.Done()
				return ctx.Err()
			})
			w.stopRenewing()
			w.store.Put(lease.Make("router-a:0", 1, time.Now(), 0))
			w.kill()
			want := []string{"store", "apply", "verify", "block " + text}
			if text == BlockApplying {
				want = []string{"store", "apply", "block " + text}
			}
			w.after(ttl-margin+100*time.Millisecond, want...)
			w.after(time.Second, append(want, "block lease unavailable: claim lease: disk is full")...)
		})
	}
}

func TestInterruptedVerification(t *testing.T) {
	inBubble(t, func(w *world) {
		w.verify = func(ctx context.Context) error { w.cancel(); <-ctx.Done(); return ctx.Err() }
	}, func(w *world) {
		w.stopRenewing()
		w.store.Put(lease.Make("router-a:0", 1, time.Now(), 0))
		w.kill()
		if _, err := w.end(); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		w.after(0, "store", "apply", "verify", "block "+BlockBroken)
		if d, _ := w.own.Look(w.t.Context()); d.Epoch != 2 || !d.Expired(time.Now()) {
			t.Errorf("left %+v", d)
		}
	})
}

// TestLongVerification is renewed meanwhile.
func TestLongVerification(t *testing.T) {
	inBubble(t, func(w *world) {
		w.verify = func(context.Context) error { time.Sleep(20 * time.Second); return nil }
	}, func(w *world) {
		w.stopRenewing()
		w.store.Put(lease.Make("router-a:0", 1, time.Now(), 0))
		w.kill()
		if _, err := w.end(); err != nil || !w.opened.Valid() || w.opened.Term().Epoch != 2 {
			t.Errorf("%v, %+v", err, w.opened)
		}
	})
}

// TestClosedConnection: a primary that ends idle connections is alive.
func TestClosedConnection(t *testing.T) {
	inBubble(t, nil, func(w *world) {
		for range 20 {
			w.wire.mu.Lock()
			for _, c := range w.open {
				_ = c.Close()
			}
			w.open = nil
			w.wire.mu.Unlock()
			time.Sleep(90 * time.Millisecond)
		}
		w.after(0, "store")
	})
}

func TestOptions(t *testing.T) {
	good := Options{Interval: 1, Misses: 1, MaxAge: 1, Renew: 1}
	for primary, address := range map[string]string{"http://a": "a:80", "https://a/": "a:443", "http://[::1]:9/x/": "[::1]:9",
		"": "", "a:80": "", "ftp://a": "", "http://u:p4ss@a": "", "http://a/?x": "", "http://": ""} {
		o := good
		o.Primary = primary
		base, got, err := o.check()
		if (err == nil) != (address != "") || got != address || strings.HasSuffix(base, "/") {
			t.Errorf("%q: %q, %q, %v", primary, base, got, err)
		}
		if err != nil && strings.Contains(err.Error(), "p4ss") {
			t.Errorf("the error tells the password: %v", err)
		}
	}
	for _, bad := range []Options{{}, {Primary: "http://a", Interval: 1, Misses: 0, MaxAge: 1, Renew: 1}, {Primary: "http://a", Misses: 1, MaxAge: 1, Renew: 1}} {
		if _, err := New(bad, nil, nil); err == nil {
			t.Errorf("%+v passes", bad)
		}
	}
}
