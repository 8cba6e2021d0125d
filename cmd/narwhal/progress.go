package main

import (
	"fmt"
	"io"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/record"
)

// lines is progress for people and logs: a line when a gate begins and ends, and one a
// step that takes long or fails. On a terminal a status line below shows what runs now;
// elsewhere a heartbeat comes when nothing was said for a while.
type lines struct {
	mu      sync.Mutex
	w       io.Writer
	live    bool // redraw a status line
	width   int
	verbose bool
	gate    string
	began   map[string]time.Time
	running map[string]time.Time
	titles  map[string]string
	ended   int // steps of the gate
	spoke   time.Time
	stop    chan struct{}
	done    chan struct{}
}

const (
	heartbeat = 30 * time.Second
	redraw    = 200 * time.Millisecond
	wipe      = "\r\x1b[2K"
)

// progress writes to standard error, live where a person watches.
func (a *app) progress(verbose bool) *lines {
	l := &lines{w: bare(a.err), verbose: verbose, began: map[string]time.Time{}, running: map[string]time.Time{}, titles: map[string]string{},
		spoke: time.Now(), stop: make(chan struct{}), done: make(chan struct{})}
	if f := fileOf(a.err); f != nil && term.IsTerminal(int(f.Fd())) && a.format != "json" && a.getenv("CI") == "" && a.getenv("TERM") != "dumb" && a.getenv("NO_COLOR") == "" {
		l.live, l.width = true, 80
		if w, _, err := term.GetSize(int(f.Fd())); err == nil && w > 20 {
			l.width = w
		}
	}
	go l.beat()
	return l
}

// Close ends the status line and the heartbeat.
func (l *lines) Close() {
	close(l.stop)
	<-l.done
}

func (l *lines) beat() {
	defer close(l.done)
	every := heartbeat
	if l.live {
		every = redraw
	}
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-l.stop:
			if l.live {
				fmt.Fprint(l.w, wipe)
			}
			return
		case <-t.C:
			l.mu.Lock()
			if l.live {
				l.draw()
			} else if len(l.running) > 0 && time.Since(l.spoke) >= heartbeat {
				id, since := l.oldest()
				fmt.Fprintf(visible{l.w}, "  … %s, %s so far (%d running)\n", id, time.Since(since).Round(time.Second), len(l.running))
			}
			l.mu.Unlock()
		}
	}
}

// oldest is the step that runs longest.
func (l *lines) oldest() (title string, since time.Time) {
	for id, at := range l.running {
		if since.IsZero() || at.Before(since) {
			title, since = l.titles[id], at
		}
	}
	return title, since
}

// draw replaces the status line.
func (l *lines) draw() {
	if len(l.running) == 0 {
		fmt.Fprint(l.w, wipe)
		return
	}
	title, since := l.oldest()
	what := "gate " + l.gate
	if l.gate == "" { // asked without the gates
		what = "engines"
	}
	s := fmt.Sprintf("%s: %d done, %d running, %s: %s", what, l.ended, len(l.running), time.Since(since).Round(100*time.Millisecond), title)
	if r := []rune(s); len(r) >= l.width {
		s = string(r[:l.width-1])
	}
	fmt.Fprint(l.w, wipe+string(shown([]byte(s))))
}

func (l *lines) say(format string, args ...any) {
	l.spoke = time.Now()
	if l.live {
		fmt.Fprint(l.w, wipe)
	}
	fmt.Fprintf(visible{l.w}, "%s\n", oneLine(fmt.Sprintf(format, args...)))
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
		l.gate, l.ended = info.Letter, 0
		l.began[info.Letter] = time.Now()
		l.say("gate %s %-10s %s", info.Letter, info.Name, why)
	case why == "holds":
		l.say("gate %s %-10s holds", info.Letter, info.Name)
	default:
		took := time.Since(l.began[info.Letter]).Round(10 * time.Millisecond)
		l.say("gate %s %-10s %s in %s", info.Letter, info.Name, marks[state], took)
		for _, f := range findings {
			if f.Note {
				l.say("  note %s: %s", f.Code, f.Message)
				continue
			}
			l.say("  %s: %s", f.Code, f.Message)
		}
	}
}

// Step says how a step ended.
func (l *lines) Step(_ string, s gates.Step, took time.Duration, err error, ended bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !ended {
		l.running[s.ID], l.titles[s.ID] = time.Now(), s.Title
		return
	}
	delete(l.running, s.ID)
	l.ended++
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
