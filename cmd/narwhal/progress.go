package main

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/record"
)

// lines is progress for people and logs: a line when a gate begins and ends, and one a
// step that takes long or fails; a heartbeat when nothing was said for a while.
type lines struct {
	mu      sync.Mutex
	w       io.Writer
	verbose bool
	began   map[string]time.Time
	running map[string]time.Time
	spoke   time.Time
	stop    chan struct{}
	done    chan struct{}
}

const heartbeat = 30 * time.Second

func newLines(w io.Writer, verbose bool) *lines {
	l := &lines{w: w, verbose: verbose, began: map[string]time.Time{}, running: map[string]time.Time{}, spoke: time.Now(), stop: make(chan struct{}), done: make(chan struct{})}
	go l.beat()
	return l
}

// Close ends the heartbeat.
func (l *lines) Close() {
	close(l.stop)
	<-l.done
}

func (l *lines) beat() {
	defer close(l.done)
	t := time.NewTicker(heartbeat)
	defer t.Stop()
	for {
		select {
		case <-l.stop:
			return
		case <-t.C:
			l.mu.Lock()
			if n := len(l.running); n > 0 && time.Since(l.spoke) >= heartbeat {
				oldest, since := "", time.Time{}
				for id, at := range l.running {
					if since.IsZero() || at.Before(since) {
						oldest, since = id, at
					}
				}
				fmt.Fprintf(l.w, "  … %s, %s so far (%d running)\n", oldest, time.Since(since).Round(time.Second), n)
			}
			l.mu.Unlock()
		}
	}
}

func (l *lines) say(format string, args ...any) {
	l.spoke = time.Now()
	fmt.Fprintf(l.w, format+"\n", args...)
}

var marks = map[string]string{
	record.VerdictPassed: "passed", record.VerdictFailed: "FAILED", record.VerdictInconclusive: "inconclusive",
}

// Gate says where a gate stands.
func (l *lines) Gate(info gates.Info, state, why string, findings []record.Finding) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case state == record.GateRunning:
		l.began[info.Letter] = time.Now()
		l.say("gate %s %-10s %s", info.Letter, info.Name, why)
	case why == "holds":
		l.say("gate %s %-10s holds", info.Letter, info.Name)
	default:
		took := time.Since(l.began[info.Letter]).Round(10 * time.Millisecond)
		l.say("gate %s %-10s %s in %s", info.Letter, info.Name, marks[state], took)
		for _, f := range findings {
			l.say("  %s: %s", f.Code, f.Message)
		}
	}
}

// Step says how a step ended.
func (l *lines) Step(_ string, s gates.Step, took time.Duration, err error, ended bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !ended {
		l.running[s.ID] = time.Now()
		return
	}
	delete(l.running, s.ID)
	switch {
	case err != nil:
		l.say("  %-34s failed after %s: %v", s.Title, took.Round(time.Millisecond), err)
	case l.verbose || took > 2*time.Second:
		l.say("  %-34s %s", s.Title, took.Round(time.Millisecond))
	}
}

// Note passes on what a long step says of itself.
func (l *lines) Note(s gates.Step, text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.say("  %-34s %s", s.Title, text)
}
