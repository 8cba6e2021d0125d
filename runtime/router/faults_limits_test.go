package router

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// A router at its limit of descriptors refuses what it must, blames no engine for it, and
// serves again afterwards.
func TestFaultsDescriptorsAtTheLimit(t *testing.T) {
	t.Parallel()
	settles(t)
	var addr string
	s := stormy(t, func(c *Config) {
		addr, _ = childRouter(t, childPlan{Engines: c.Fleet.Engines, Journal: filepath.Join(t.TempDir(), "j.jsonl"), Files: 48})
	})
	url := "http://" + addr
	// Eight connections are open before the others take what is left.
	// They asked one after the other, so that few connections to engines are left for all.
	var all sync.WaitGroup
	crowded := make(chan struct{})
	for c := range 8 {
		client := s.client()
		warm := watch(t.Context(), client, url, stormAsk(c), fmt.Sprint("warm", c), nil)
		s.note(warm, warm.right(s.wants[c], false))
		all.Go(func() {
			<-crowded
			for k := range 3 {
				x := watch(long(t), client, url, stormAsk(c), fmt.Sprint("crowded-", c, "-", k), nil)
				var err error
				if x.err == nil {
					err = x.right(s.wants[c], false)
				}
				s.note(x, err)
			}
		})
	}
	var idlers []net.Conn
	for range 100 {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		idlers = append(idlers, c)
	}
	close(crowded)
	all.Wait()
	for _, c := range idlers {
		c.Close()
	}
	eventually(t, "service again", func() bool { return s.one("after", 3, url).short() == "200" })
	for _, err := range s.errs {
		t.Error(err)
	}
	var st state
	a := post(t, limit(t), s.engines[0].URL()+"/tokenize", `{"prompt":"x"}`)
	if err := s.idle(); err != nil || a.status != 200 {
		t.Error(err, a.status)
	}
	if err := getJSON(url+"/narwhal/state", &st); err != nil {
		t.Fatal(err)
	}
	var blamed error
	if list, _ := json.Marshal(st.Breaker["ejections"]); string(list) != "[]" {
		blamed = fmt.Errorf("ejections %s", list)
	}
	judge(t, "a router without descriptors blames no engine", blamed)
	t.Logf("%v, retries %v", s.tally(), st.Serving["retry_attempts"])
}

// A journal that cannot be written costs rows, which is said, and no answer.
func TestFaultsJournalDiskFull(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("this system has no /dev/full")
	}
	settles(t)
	b := startFleet(t, 1, 1, nil, steered, func(c *Config) { c.JournalPath = "/dev/full" })
	want := b.unsplit("d0", matrixRow{}.ask(false))
	for range 8 {
		if s := watch(long(t), b.client(), b.url, matrixRow{}.ask(true), "", nil); s.right(want, true) != nil || s.short() != "200" {
			t.Errorf("%+v", s)
		}
	}
	eventually(t, "loss noted", func() bool { return b.router.own.journal.Dropped() > 0 || b.router.own.journal.Err() != nil })
	metrics := get200(t, b.url+"/metrics")
	var silent error
	if !strings.Contains(metrics, "journal") {
		silent = errors.New("no metric of the router names the journal")
	}
	judge(t, "a journal that cannot be written is seen while the router serves", silent)
	b.stopped = true
	if err := b.router.Stop(limit(t)); err == nil {
		t.Error("the router's end does not tell of the journal")
	}
	if err := b.idle(); err != nil {
		t.Error(err)
	}
}
