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
	return fmt.Sprintf(probe, remote.Quote(path.Clean(h.Root)), strings.TrimSpace(files.String()))
}

// probe looks at the root, or at the nearest folder above it that exists. The clock stands
// last, so that the time to hash files does not count as an offset.
const probe = `LC_ALL=C; export LC_ALL
have() { command -v "$1" >/dev/null 2>&1; }
echo "== os"; uname -s; uname -r; uname -m; uname -n
sed -n 's/^PRETTY_NAME=//p' /etc/os-release 2>/dev/null
echo "== boot"; cat /proc/sys/kernel/random/boot_id 2>/dev/null || sysctl -n kern.boottime 2>/dev/null | sed 's/}.*//' | tr -cd '0-9'
echo "== user"; id -u; id -un
echo "== cpu"; getconf _NPROCESSORS_ONLN 2>/dev/null || nproc 2>/dev/null
sed -n '/^model name/{s/^[^:]*: //p;q;}' /proc/cpuinfo 2>/dev/null
echo "== memory"; sed -n 's/^MemTotal: *\([0-9]*\) kB/\1/p;s/^MemAvailable: *\([0-9]*\) kB/\1/p' /proc/meminfo 2>/dev/null
echo "== disk"; p=%[1]s; while [ ! -d "$p" ] && [ "$p" != / ]; do p=${p%%/*}; p=${p:-/}; done; df -Pk "$p" 2>/dev/null | tail -n 1
if [ -w "$p" ]; then echo writable; else echo read-only; fi
echo "== interfaces"
if [ -d /sys/class/net ]; then for i in /sys/class/net/*; do m= o=; { read -r m <"$i/mtu"; read -r o <"$i/operstate"; } 2>/dev/null; echo "${i##*/} $m $o"; done; else ifconfig -a 2>/dev/null | sed -n 's/^\([a-z0-9]*\):.* mtu \([0-9]*\).*/\1 \2 unknown/p'; fi
echo "== addresses"
if have ip; then ip -o addr show 2>/dev/null | while read -r _ n f a _; do echo "$n $f $a"; done; fi
echo "== listeners"
if have ss; then ss -Hltn 2>/dev/null | while read -r _ _ _ a _; do echo "$a"; done; elif [ -r /proc/net/tcp ]; then cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | while read -r _ a _ s _; do [ "$s" = 0A ] && echo "hex $a"; done; fi
echo "== gpus"
if have nvidia-smi; then nvidia-smi --query-gpu=index,name,uuid,memory.total --format=csv,noheader 2>/dev/null | sed 's/^/nvidia, /'; fi
if have rocminfo; then rocminfo 2>/dev/null | sed -n 's/^ *Marketing Name: */amd, /p'; fi
echo "== runtimes"
for c in docker podman nerdctl; do if have $c; then echo "$c $(command -v $c)"; fi; done
echo "== limits"; ulimit -l 2>/dev/null; ulimit -n
echo "== files"
for f in %[2]s; do
  if [ -f "$f" ] && [ -r "$f" ]; then
    m=$(stat -L -c '%%s %%Y %%i' "$f" 2>/dev/null || stat -L -f '%%z %%m %%i' "$f" 2>/dev/null)
    s=$(sha256sum < "$f" 2>/dev/null || shasum -a 256 < "$f" 2>/dev/null || openssl dgst -sha256 -r < "$f" 2>/dev/null)
    s=${s%%%% *}
    printf '%%s %%s %%s\n' "${s:--}" "${m:-- - -}" "$f"
  else printf 'absent %%s\n' "$f"; fi
done
echo "== clock"; date +%%s.%%N 2>/dev/null || date +%%s
echo "== end"
`
