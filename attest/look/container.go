package look

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

const inspectLimit = 10 * time.Second

// inspect asks a container's runtime; a variable so that tests need none.
var inspect = func(ctx context.Context, runtime, name string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, inspectLimit)
	defer cancel()
	return exec.CommandContext(ctx, runtime, "container", "inspect", "--format", "{{.Id}} {{.State.Pid}}", name).Output()
}

// container resolves the engine's own process and the container that it is in. A process
// that is a runtime's client stands for the container's first process.
func (o *Observer) container(ctx context.Context, pid int) (int, Seen) {
	if o.watch.Container == "" {
		return pid, o.root.containerOf(pid)
	}
	runtime, name, _ := strings.Cut(o.watch.Container, ":")
	out, err := inspect(ctx, runtime, name)
	if err != nil {
		return pid, unknown("%s does not tell of container %s: %v", runtime, name, err)
	}
	id, rest, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	inner, err := strconv.Atoi(rest)
	if err != nil || inner <= 0 || !isDigest(id) {
		return pid, unknown("%s has no running container %s", runtime, name)
	}
	ticks, err := o.root.ticks(inner)
	if err != nil {
		return pid, unknown("the process of container %s: %s", name, why(err))
	}
	if in := o.root.containerOf(inner); len(in.Is) == 1 && in.Is[0] != None && in.Is[0] != id {
		return inner, Seen{Is: []string{in.Is[0], process(inner, ticks)}}
	}
	return inner, Seen{Is: []string{id, process(inner, ticks)}}
}

func process(pid int, ticks int64) string { return fmt.Sprintf("process %d:%d", pid, ticks) }
