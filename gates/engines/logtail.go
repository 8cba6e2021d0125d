package engines

import (
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/narwhal-fleet/narwhal/gates/engines/cause"
)

// logTail reads what a log has grown by.
type logTail struct {
	path   string
	at     int64
	reader cause.Reader
}

const (
	// logAtOnce bounds one look; the next look goes on.
	logAtOnce = 2 << 20
	// logBehind is how far behind a log may be read before its middle is passed over.
	logBehind = 64 << 20
)

func (l *logTail) read() {
	f, err := os.Open(l.path)
	if err != nil {
		return
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil || !st.Mode().IsRegular() {
		return
	}
	if st.Size() < l.at {
		l.at = 0 // it was cut
	}
	if st.Size()-l.at > logBehind {
		l.at = st.Size() - logAtOnce
	}
	n, _ := io.Copy(&l.reader, io.NewSectionReader(f, l.at, logAtOnce))
	l.at += n
}

// oomKills is how often the kernel has ended a process for want of memory since it booted;
// 0 where it does not tell.
func oomKills() uint64 {
	b, err := os.ReadFile("/proc/vmstat")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "oom_kill "); ok {
			n, _ := strconv.ParseUint(strings.TrimSpace(v), 10, 64)
			return n
		}
	}
	return 0
}
