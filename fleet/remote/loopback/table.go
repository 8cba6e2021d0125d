package loopback

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// markName is the environment variable that tags a server's processes.
const markName = "NARWHAL_LOOPBACK"

// Limits of KillAll.
const (
	termGrace = 2 * time.Second       // between TERM and KILL
	killPoll  = 20 * time.Millisecond // between two looks at the processes
)

// table knows the process groups that a server started. Descendants that moved to a group
// of their own are found by the mark in their environment where /proc shows it.
type table struct {
	mark   string
	mu     sync.Mutex
	groups map[int]bool // value: the leader is not reaped yet
}

func (t *table) add(pid int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.groups == nil {
		t.groups = map[int]bool{}
	}
	t.groups[pid] = true
}

func (t *table) reaped(pid int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if syscall.Kill(-pid, 0) != nil {
		delete(t.groups, pid)
		return
	}
	t.groups[pid] = false
}

// alive returns the ids of the groups that have a process, in order.
func (t *table) alive() []int {
	found, scanned := marked(t.mark)
	t.mu.Lock()
	defer t.mu.Unlock()
	for pid, leader := range t.groups {
		switch {
		case leader:
			found = append(found, pid)
		case syscall.Kill(-pid, 0) != nil:
			delete(t.groups, pid)
		case !scanned:
			found = append(found, pid)
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// marked returns the process groups whose members carry mark, and whether it could look.
func marked(mark string) ([]int, bool) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, false
	}
	var groups []int
	seen := false
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		env, err := os.ReadFile("/proc/" + e.Name() + "/environ")
		if err != nil {
			continue
		}
		seen = true
		if !slices.ContainsFunc(bytes.Split(env, []byte{0}), func(v []byte) bool { return string(v) == mark }) {
			continue
		}
		if group, err := syscall.Getpgid(pid); err == nil && group > 1 {
			groups = append(groups, group)
		}
	}
	return groups, seen
}

// Processes returns the ids of the process groups, alive now, that this server's commands
// started, as far as known: a process that cleared its environment and left its group is not seen.
func (s *Server) Processes() []int { return s.table.alive() }

// KillAll ends every process of Processes: TERM, after two seconds KILL. It returns when none
// is left, or with an error naming the rest when ctx ends.
func (s *Server) KillAll(ctx context.Context) error {
	start := time.Now()
	signalled := map[int]bool{}
	tick := time.NewTicker(killPoll)
	defer tick.Stop()
	for {
		groups := s.Processes()
		if len(groups) == 0 {
			return nil
		}
		for _, g := range groups {
			if g == syscall.Getpgrp() {
				return errors.New("kill processes of ssh server: a marked process shares this process's group")
			}
			if time.Since(start) > termGrace {
				_ = syscall.Kill(-g, syscall.SIGKILL)
			} else if !signalled[g] {
				signalled[g] = true
				_ = syscall.Kill(-g, syscall.SIGTERM)
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("kill processes of ssh server: groups %v are left: %w", groups, ctx.Err())
		case <-tick.C:
		}
	}
}
