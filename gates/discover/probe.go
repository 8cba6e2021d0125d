package discover

import (
	"fmt"
	"path"
	"strings"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/fleet/remote"
)

// Probe is the script that observes a host. It prints sections "== name" with lines
// below, reads only, and ends with "== end", so that a cut answer is noticed.
func Probe(h fleet.Host) string {
	var files strings.Builder
	for _, f := range h.Files {
		files.WriteString(" " + remote.Quote(f))
	}
	return prelude + fmt.Sprintf(probe, remote.Quote(path.Clean(h.Root)), strings.TrimSpace(files.String()))
}

// prelude is the beginning of every probe: words of tools in English, and a limit for
// tools that hang.
const prelude = `LC_ALL=C; LANGUAGE=; export LC_ALL LANGUAGE
have() { command -v "$1" >/dev/null 2>&1; }
`

// probe looks at the root, or at the nearest folder above it that exists. It starts few
// processes, since the fleet's hosts are asked at once. Control groups are read from the
// shell's own up to the top: the narrowest limit counts.
const probe = `echo "== os"; set -- $(uname -snrm); printf '%%s\n' "$1" "$3" "$4" "$2"
if [ -r /etc/os-release ]; then while IFS= read -r l; do case $l in PRETTY_NAME=*) echo "${l#PRETTY_NAME=}"; break;; esac; done </etc/os-release; fi
echo "== boot"; if [ -r /proc/sys/kernel/random/boot_id ]; then read -r b </proc/sys/kernel/random/boot_id; echo "$b"; else sysctl -n kern.boottime 2>/dev/null | sed 's/}.*//' | tr -cd '0-9'; fi
echo "== user"; u=; if [ -r /proc/self/status ]; then while read -r k _ e _; do case $k in Uid:) u=$e; break;; esac; done </proc/self/status; fi
if [ -n "$u" ]; then echo "$u"; else id -u; fi; u=${LOGNAME:-$USER}; if [ -n "$u" ]; then echo "$u"; else id -un; fi
echo "== cpu"; if { read -r c </sys/devices/system/cpu/online; } 2>/dev/null; then echo "online $c"; else getconf _NPROCESSORS_ONLN 2>/dev/null || nproc 2>/dev/null; fi
if [ -r /proc/cpuinfo ]; then while IFS= read -r l; do case $l in "model name"*) echo "${l#*: }"; break;; "") break;; esac; done </proc/cpuinfo; fi
echo "== memory"; if [ -r /proc/meminfo ]; then while read -r k v _; do case $k in MemTotal:|MemAvailable:|HugePages_Total:|HugePages_Free:|Hugepagesize:) echo "$k $v";; esac; done </proc/meminfo; fi
echo "== disk"; p=%[1]s; while [ ! -d "$p" ] && [ "$p" != / ]; do p=${p%%/*}; p=${p:-/}; done; if [ -w "$p" ]; then echo writable; else echo read-only; fi; df -Pk "$p" 2>/dev/null
echo "== listeners"
if have ss; then ss -Hltn 2>/dev/null; elif [ -r /proc/net/tcp ]; then cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | while read -r _ a _ s _; do [ "$s" = 0A ] && echo "hex $a"; done; fi
echo "== runtimes"
for c in docker podman nerdctl; do if have $c; then printf "%%s " $c; command -v $c; fi; done
echo "== limits"; for o in -l -n -u; do for w in S H; do printf '%%s ' "$w$o"; ulimit -$w $o 2>/dev/null || echo; done; done
echo "== cgroup"
if [ -r /proc/self/cgroup ]; then
  while IFS=: read -r n c g; do
    case $n:$c in
    0:) d=/sys/fs/cgroup${g%%/}; [ -e /sys/fs/cgroup/cgroup.controllers ] || continue
      while :; do
        for f in memory.max cpu.max pids.max; do v=; { read -r v <"$d/$f"; } 2>/dev/null && echo "$f $v"; done
        [ "$d" = /sys/fs/cgroup ] && break
        d=${d%%/*}; case $d in /sys/fs/cgroup*) ;; *) break;; esac
      done;;
    *:memory) for d in "/sys/fs/cgroup/memory$g" /sys/fs/cgroup/memory; do v=; { read -r v <"$d/memory.limit_in_bytes"; } 2>/dev/null && { echo "memory.max $v"; break; }; done;;
    *:pids) for d in "/sys/fs/cgroup/pids$g" /sys/fs/cgroup/pids; do v=; { read -r v <"$d/pids.max"; } 2>/dev/null && { echo "pids.max $v"; break; }; done;;
    *:cpu|*:cpu,cpuacct) for d in "/sys/fs/cgroup/$c$g" "/sys/fs/cgroup/$c"; do q=; p=; { read -r q <"$d/cpu.cfs_quota_us" && read -r p <"$d/cpu.cfs_period_us"; } 2>/dev/null && { echo "cpu.max $q $p"; break; }; done;;
    esac
  done </proc/self/cgroup
fi
echo "== files"
for f in %[2]s; do
  if [ -f "$f" ] && [ -r "$f" ]; then
    m=$(stat -L -c '%%s %%Y %%i' "$f" 2>/dev/null || stat -L -f '%%z %%m %%i' "$f" 2>/dev/null)
    s=$(openssl dgst -sha256 -r < "$f" 2>/dev/null || sha256sum < "$f" 2>/dev/null || shasum -a 256 < "$f" 2>/dev/null)
    s=${s%%%% *}
    printf '%%s %%s %%s\n' "${s:--}" "${m:-- - -}" "$f"
  else printf 'absent %%s\n' "$f"; fi
done
echo "== end"
`
