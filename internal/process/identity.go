// Package process starts, finds and stops long-lived processes by identity.
//
// It promises that a record naming the process is on disk before the process runs
// its program, that a recycled pid is never taken for the recorded process, and that
// starting twice adopts what already runs. It refuses to signal anything whose
// identity differs from its record.
package process

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Identity tells one process from every other: a pid is only unique with the boot it
// lives in and the tick at which it started.
type Identity struct {
	PID        int    `json:"pid"`
	BootID     string `json:"boot_id"`
	StartTicks uint64 `json:"start_ticks"`
}

func (i Identity) String() string {
	boot := i.BootID
	if len(boot) > 8 {
		boot = boot[:8]
	}
	return fmt.Sprintf("%s:%d:%d", boot, i.PID, i.StartTicks)
}

// Self returns the identity of the calling process.
func Self() (Identity, error) {
	id, ok := Of(os.Getpid())
	if !ok {
		return Identity{}, fmt.Errorf("read own process identity: not found")
	}
	return id, nil
}

// Of returns the identity of a live process; false when there is none. A zombie is not alive.
func Of(pid int) (Identity, bool) {
	if pid <= 0 || syscall.Kill(pid, 0) == syscall.ESRCH {
		return Identity{}, false
	}
	ticks, ok := startTicks(pid)
	if !ok {
		return Identity{}, false
	}
	return Identity{PID: pid, BootID: BootID(), StartTicks: ticks}, true
}

// Alive reports whether exactly this process still runs.
func (i Identity) Alive() bool {
	now, ok := Of(i.PID)
	return ok && now == i
}

// grouped reports whether the process has ended and left others in the group that it led.
// The kernel gives its pid to no new process while that group has members, so whoever
// is in the group belongs to it, unless a process lives under the pid.
func grouped(i Identity) bool {
	if i.PID <= 1 || i.BootID != BootID() {
		return false
	}
	if _, taken := Of(i.PID); taken {
		return false
	}
	return groupAlive(i.PID)
}

// BootID identifies the machine's present boot, "" when it cannot be read.
func BootID() string {
	if b, err := os.ReadFile("/proc/sys/kernel/random/boot_id"); err == nil {
		return strings.TrimSpace(string(b))
	}
	if out, err := exec.Command("sysctl", "-n", "kern.boottime").Output(); err == nil {
		return strings.Map(func(r rune) rune {
			if r >= '0' && r <= '9' {
				return r
			}
			return -1
		}, strings.SplitN(string(out), "}", 2)[0])
	}
	return ""
}

// startTicks reads when a process started, in kernel ticks since boot (seconds since the
// epoch where there is no /proc). While a process with threads replaces its program, its
// first thread looks like a zombie for as long as the machine takes: it is one only without
// other threads, and is looked at again for the moment in which they change places.
func startTicks(pid int) (uint64, bool) {
	for try := 0; ; try++ {
		ticks, zombie, ok := readTicks(pid)
		if !zombie || try == zombieTries {
			return ticks, ok
		}
		time.Sleep(zombieWait)
	}
}

const (
	zombieTries = 4
	zombieWait  = 2 * time.Millisecond
)

func readTicks(pid int) (ticks uint64, zombie, ok bool) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		if _, statErr := os.Stat("/proc/self/stat"); statErr == nil {
			return 0, false, false
		}
		ticks, ok = startFromPS(pid)
		return ticks, false, ok
	}
	return fromStat(b)
}

// fromStat reads a line of /proc/PID/stat.
func fromStat(b []byte) (ticks uint64, zombie, ok bool) {
	// The command name is in parentheses and may hold anything: read behind the last one.
	i := bytes.LastIndexByte(b, ')')
	if i < 0 {
		return 0, false, false
	}
	f := strings.Fields(string(b[i+1:]))
	if len(f) < 20 {
		return 0, false, false
	}
	threads, _ := strconv.Atoi(f[17])
	if f[0] == "X" || f[0] == "Z" && threads < 2 {
		return 0, true, false
	}
	n, err := strconv.ParseUint(f[19], 10, 64)
	return n, false, err == nil
}

func startFromPS(pid int) (uint64, bool) {
	out, err := exec.Command("ps", "-o", "lstart=,state=", "-p", strconv.Itoa(pid)).Output()
	f := strings.Fields(string(out))
	if err != nil || len(f) < 6 || strings.HasPrefix(f[5], "Z") {
		return 0, false
	}
	t, err := time.Parse("Mon Jan 2 15:04:05 2006", strings.Join(f[:5], " "))
	return uint64(t.Unix()), err == nil
}
