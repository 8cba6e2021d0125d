package lease

import (
	"os/exec"
	"testing"
)

// A guard that is killed is waited for, told of and started anew, and Close ends the last one.
func TestKeepGuard(t *testing.T) {
	made, tells := make(chan *exec.Cmd, 10), make(chan error, 10)
	script := `kill -9 $$`
	g := KeepGuard(func() *exec.Cmd {
		c := exec.Command("sh", "-c", script)
		script = "exec cat" // ends with its input, as a guard does
		made <- c
		return c
	}, func(err error) { tells <- err })
	first, told, second := <-made, <-tells, <-made
	if first.ProcessState == nil || g.Ends() != 1 || told.Error() != "guard ended: signal: killed" {
		t.Errorf("ended %d times, %v: %v", g.Ends(), first.ProcessState, told)
	}
	g.Close()
	<-g.done
	if second.ProcessState == nil || !second.ProcessState.Success() || g.Ends() != 1 {
		t.Errorf("ended %d times, the second one %v", g.Ends(), second.ProcessState)
	}
}

// A guard that cannot be started is tried again.
func TestGuardCannotStart(t *testing.T) {
	tells := make(chan error, 10)
	g := KeepGuard(func() *exec.Cmd { return exec.Command("/nonexistent/guard") }, func(err error) { tells <- err })
	defer g.Close()
	for range 2 {
		if err := <-tells; err == nil {
			t.Error("started")
		}
	}
}
