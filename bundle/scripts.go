package bundle

import (
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/fleet/remote"
)

// describe prints what lies in the host's folder, then what a person would look at first.
// Nothing is written. A tool that is not there, or not permitted, says so in its section.
const describe = `PATH=$PATH:/usr/sbin:/sbin; LC_ALL=C; export PATH LC_ALL
echo '== files'
( cd ROOT && for f in etc/host.json run/*.json run/*.log attest/*.json router/*.json router/journal.jsonl standby/*.json standby/journal.jsonl router/journal-*Z.jsonl standby/journal-*Z.jsonl; do
[ -f "$f" ] && [ ! -L "$f" ] && echo "$f"; done ) 2>&1 | head -n 512
s() { echo "== $*"; "$@" 2>&1 </dev/null | head -c 49152; echo; }
s uname -a
s uptime
s date -u
s df -P -k
s free -k
s ss -s
s ss -t -l -n
s ps -e -o pid,ppid,etime,rss,comm
s ls -l -n ROOT ROOT/run ROOT/router ROOT/standby
echo '== dmesg, its end'
dmesg 2>&1 </dev/null | tail -n 100
exit 0
`

// Scripts lists every command that a collection may run on a host, so that a plan can show
// and permit them: the first one runs always, each of the others only when the file that
// it reads the end of is larger than what is kept. None changes anything.
func Scripts(f fleet.Fleet, host string) []remote.Command {
	if f.Deploy == nil {
		return nil
	}
	root := f.Deploy.Hosts[host].Root
	out := []remote.Command{{
		Script: strings.ReplaceAll(describe, "ROOT", remote.Quote(root)), Limit: scriptLimit, MaxOutput: maxScript,
	}}
	for _, it := range expected(f, host) {
		if it.tail {
			out = append(out, tailOf(root, it))
		}
	}
	return out
}

// journalEnd prints the last $1 bytes of the journal at $2 over its files: those that ended
// carry the time in their names. No more files are read than the bytes need.
const journalEnd = `cd "${2%/*}" || exit 1
b=${2##*/}; b=${b%.jsonl}; l=$1; n=0; set --
for f in "$b.jsonl" $(ls -r | grep "^$b-[0-9T.]*Z\.jsonl$"); do
[ -f "$f" ] && [ ! -L "$f" ] || continue
set -- "$f" "$@"; n=$((n+$(wc -c <"$f"))); [ "$n" -ge "$l" ] && break; done
[ $# -gt 0 ] || exit 1
cat -- "$@" | tail -c "$l"`

// ended reports whether a journal has files beside the one that is written.
func ended(have map[string]bool, file string) bool {
	prefix := strings.TrimSuffix(file, ".jsonl") + "-"
	for name := range have {
		if strings.HasPrefix(name, prefix) && strings.HasSuffix(name, "Z.jsonl") {
			return true
		}
	}
	return false
}

func tailOf(root string, it item) remote.Command {
	if it.lines {
		return remote.Command{
			Argv:  []string{"sh", "-c", journalEnd, "sh", strconv.FormatInt(it.limit, 10), path.Join(root, it.file)},
			Limit: fileLimit, MaxOutput: int(it.limit),
		}
	}
	return remote.Command{
		Argv:  []string{"tail", "-c", strconv.FormatInt(it.limit, 10), path.Join(root, it.file)},
		Limit: fileLimit, MaxOutput: int(it.limit),
	}
}

var listedName = regexp.MustCompile(`^(run|attest|router|standby)/[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

// listed reads the files that a host says it has; false when it did not say.
func listed(description []byte) (map[string]bool, bool) {
	body, ok := strings.CutPrefix(string(description), "== files\n")
	if !ok {
		return nil, false
	}
	body, _, ended := strings.Cut(body, "\n== ")
	if strings.HasPrefix(body, "== ") {
		body, ended = "", true
	}
	out := map[string]bool{}
	for _, line := range strings.Split(body, "\n") {
		if line == "etc/host.json" || listedName.MatchString(line) {
			out[line] = true
		}
	}
	return out, ended
}

// further lists the JSON files that a host has beside the expected ones, at most maxListed.
func further(have map[string]bool, known []item, place string) []item {
	var names []string
	for name := range have {
		taken := slices.ContainsFunc(known, func(it item) bool { return it.file == name })
		if !taken && strings.HasSuffix(name, ".json") && !private(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	var out []item
	for _, name := range names[:min(len(names), maxListed)] {
		out = append(out, item{path: placed(place, name), file: name, limit: maxFile, optional: true})
	}
	return out
}

// private reports whether a file's name is one of credentials.
func private(name string) bool {
	base := strings.ToLower(path.Base(name))
	return strings.Contains(base, "credential") || strings.Contains(base, "secret") || strings.HasPrefix(base, "id_") || strings.Contains(base, ".key")
}
