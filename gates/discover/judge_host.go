package discover

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates"
)

func (b *bench) judgeHost(o Observation) {
	b.key = hostKey(b.host)
	d := b.fleet.Deploy
	if got := gates.Arch(o.OS, o.Machine); got != "" {
		if _, ok := b.view.Release.For(got); !ok {
			b.add("host-architecture", architectures(b.view.Release), got, "give a narwhal binary for that machine: deploy.release.binaries, or deploy.release.binary for all")
		}
	}
	if min := int64(d.Policy.MinDiskFree); o.DiskFree < min {
		b.add("disk-space", d.Policy.MinDiskFree.String()+" free", size(o.DiskFree), "free space there or lower deploy.policy.min_disk_free")
	}
	if !o.Writable {
		b.add("root-not-writable", "a root folder that "+o.User+" may write", d.Hosts[b.host].Root, "create the folder and give it to "+o.User+", or set another root")
	}
	hashed := map[string]bool{}
	for _, f := range o.Files {
		hashed[f.Path] = f.SHA256 != ""
	}
	for _, path := range d.Hosts[b.host].Files {
		if !hashed[path] {
			b.add("file-absent", path, "absent or unreadable", "copy the file to the host or drop it from its files")
		}
	}
	if b.real() {
		b.judgeLimits(o)
	}
}

// architectures lists the machines that the release is for.
func architectures(r gates.Release) string {
	var out []string
	for _, b := range r.Binaries() {
		out = append(out, b.Arch)
	}
	return strings.Join(out, ", ")
}

// What an engine needs of a host's limits.
const (
	fewFiles   = 4096  // below it an engine with a connection a request fails
	someFiles  = 65536 // what engines' own notes ask for
	someTasks  = 4096  // threads of an engine with its workers
	allOfThem  = "no limit below the host's own"
	groupsHint = "raise the limit of the unit or slice that the SSH user's sessions are in"
)

func (b *bench) judgeLimits(o Observation) {
	l := o.Limits
	if n := l.Files; n >= 0 && n < someFiles {
		b.add("open-files", fmt.Sprintf("a hard limit of %d open files or more", someFiles), strconv.FormatInt(n, 10), "raise nofile for "+o.User+" in /etc/security/limits.conf").Note = n >= fewFiles
	}
	if n := l.Locked; n != Unlimited && b.fleet.Deploy.Fabric.Transport == "rdma" {
		got := size(n) + " of locked memory"
		if n == Untold {
			got = "a limit that the host does not tell"
		}
		b.add("locked-memory", "unlimited locked memory, which RDMA registers", got, "set memlock unlimited for "+o.User+" in /etc/security/limits.conf")
	}
	if n := l.Memory; n >= 0 && n < o.MemTotal {
		b.add("group-memory", allOfThem, size(n)+" of "+size(o.MemTotal), groupsHint).Note = true
	}
	if n := l.CPUs; n >= 0 && o.CPUs > 0 && n < float64(o.CPUs) {
		b.add("group-cpus", allOfThem, fmt.Sprintf("%.1f of %d CPUs", n, o.CPUs), groupsHint).Note = true
	}
	for _, n := range []int64{l.GroupIDs, l.Tasks} {
		if n >= 0 && n < someTasks {
			b.add("few-tasks", fmt.Sprintf("%d processes and threads or more", someTasks), strconv.FormatInt(n, 10), "raise pids.max of the session's control group and nproc of "+o.User).Note = true
		}
	}
}

// judgeClock passes an offset only when it is within the limit with its whole error.
func (b *bench) judgeClock(c Clock) {
	b.key = clockKey(b.host)
	most := b.fleet.Deploy.Policy.MaxClockOffset.D()
	if most <= 0 {
		return
	}
	off := math.Abs(c.Offset)
	if len(c.Samples) > 0 && off+c.Error <= most.Seconds() { // also false for what is no number
		return
	}
	b.add("clock-offset", "at most "+fleet.Duration(most).String(), fmt.Sprintf("%s, known to ± %s", span(c.Offset), span(c.Error)),
		"let the host, or the workstation where all hosts differ alike, follow a time server, then run narwhal gate run --again A")
}

// span writes seconds as a duration; 68 years are the most.
func span(s float64) string {
	s = max(-math.MaxInt32, min(s, math.MaxInt32))
	return time.Duration(s * float64(time.Second)).Round(time.Millisecond).String()
}
