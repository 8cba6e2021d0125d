package router

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/narwhal-fleet/narwhal/runtime/journal"
	"github.com/narwhal-fleet/narwhal/runtime/profile"
	"github.com/narwhal-fleet/narwhal/runtime/replay"
)

// onDisk is a store that a test changes while the router reads it.
type onDisk struct {
	sync.Mutex
	b   []byte
	err error
}

func (d *onDisk) read(context.Context) ([]byte, error) {
	d.Lock()
	defer d.Unlock()
	return d.b, d.err
}

func (d *onDisk) put(t *testing.T, rows ...profile.Row) {
	t.Helper()
	b, err := profile.NewStore(nil, rows...).Encode()
	if err != nil {
		t.Fatal(err)
	}
	d.Lock()
	defer d.Unlock()
	d.b, d.err = b, nil
}

// TestActivateProfiles takes profiles from the store while requests go on: of engines that serve
// such of their own generation, of one that is drained any.
func TestActivateProfiles(t *testing.T) {
	var rows []profile.Row
	store := &onDisk{}
	b := startBed(t, 1, 2, quick(), func(c *Config) {
		rows = append(rows, c.Profiles.Rows...)
		c.ReadProfiles = store.read
		c.Fleet.SLO.TPOTS = 2 // a slow machine is no reason to refuse
	})
	row := func(i int, digest string, slower float64) profile.Row {
		c := curveOf(quick())
		c.Intercept += slower
		if digest == "" {
			digest = *rows[i].GenerationDigest
		}
		return profile.NewRow(rows[i].IID, digest, c, profile.Report{})
	}
	activate := func(body string, status int, says string) {
		t.Helper()
		if a := post(t, limit(t), b.url+"/narwhal/lifecycle/activate", body); a.status != status || !strings.Contains(a.body, says) {
			t.Errorf("%s: %d %s", body, a.status, a.body)
		}
	}
	intercept := func(id string) (v float64) {
		b.router.own.do(func() { v = b.router.own.node(id).curve.Intercept })
		return v
	}
	store.err = errors.New("the disk is away")
	activate(`{"engines":["d0"]}`, 503, "the disk is away")
	store.b, store.err = []byte(`{"schema":"other"}`), nil
	activate(`{"engines":["d0"]}`, 409, "read profile store")
	store.b = []byte(`{"schema":7}`)
	activate(`{"engines":["d0"]}`, 409, "schema is of kind number, want text")
	store.put(t, row(0, "", 1), row(1, "", 1), row(2, "sha256:"+strings.Repeat("0f", 32), 1))
	activate(`{"engines":["x"]}`, 409, `unknown engine`)
	activate(`{"engines":["d0"],"sha256":7}`, 422, "valid string")
	activate(fmt.Sprintf(`{"engines":["d0"],"sha256":"%064d"}`, 7), 409, "has digest")
	activate(`{"engines":["d1"]}`, 409, "drain it first")
	activate(`{"wave":true}`, 409, "drain it first")
	activate(`{}`, 409, "name the engines")
	activate(`{"engine":["d0"]}`, 409, "name the engines")
	if intercept("p0") != curveOf(quick()).Intercept {
		t.Error("a refused activation changed an engine")
	}
	var clients sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	for range 3 {
		clients.Go(func() {
			for ctx.Err() == nil {
				if a := b.complete(body(false, 20)); a.status != 200 {
					t.Errorf("%d %s", a.status, a.body)
				}
			}
		})
	}
	activate(`{"engines":["d0"]}`, 200, `"d0"`)
	activate(`{"engines":["p0","d0"]}`, 200, `"d0"`)
	if a := post(t, limit(t), b.url+"/narwhal/lifecycle/drain", `{"engines":["d1"]}`); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	activate(`{"engines":["d1"]}`, 200, `"d1"`)
	if a := post(t, limit(t), b.url+"/narwhal/lifecycle/readmit", `{"engines":["d1"]}`); a.status != 409 || !strings.Contains(a.body, "profile generation") {
		t.Errorf("a process of another generation: %d %s", a.status, a.body)
	}
	store.put(t, row(2, "", 2))
	activate(`{"engines":["d1"]}`, 200, `"d1"`)
	activate(`{"engines":["p0"]}`, 409, "no row of engine p0")
	if a := post(t, limit(t), b.url+"/narwhal/lifecycle/readmit", `{"engines":["d1"]}`); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
	b.complete(body(false, 4))
	cancel()
	clients.Wait()
	b.stop()
	seen := map[string]int{}
	readEvents(t, b.journal, func(e journal.Event) {
		if e.Name == "profile_activated" {
			seen[e.Fields["iid"].(string)]++
		}
	})
	if seen["p0"] != 1 || seen["d0"] != 2 || seen["d1"] != 2 {
		t.Errorf("the journal tells of %v", seen)
	}
	r, err := replay.Path(b.journal)
	if err != nil || r.Differ != 0 || r.Placements == 0 {
		t.Errorf("decisions made again: %+v, %v", r, err)
	}
}

// TestActivateWithoutAStore: a router that was given rows alone has nothing to read.
func TestActivateWithoutAStore(t *testing.T) {
	b := startBed(t, 1, 1, quick())
	if a := post(t, limit(t), b.url+"/narwhal/lifecycle/activate", `{"wave":true}`); a.status != 409 || !strings.Contains(a.body, "no profile store") {
		t.Errorf("%d %s", a.status, a.body)
	}
}
