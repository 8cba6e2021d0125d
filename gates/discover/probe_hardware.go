package discover

import (
	"fmt"
	"strings"

	"github.com/narwhal-fleet/narwhal/gates/discover/nvidia"
)

// HardwareProbe is the script that lists accelerators, PCI functions, NUMA nodes and RDMA
// devices. A tool that the host lacks leaves "-- status 127"; one that hangs is ended
// where the host has timeout, killed where that knows -k, and costs the step's limit elsewhere.
// One that does not stop printing is cut off and leaves "-- status 141". A driver that does not
// know a column is asked for fewer.
func HardwareProbe() string { return hardwareScript(toolWithin) }

func hardwareScript(within int) string {
	queries := []string{nvidia.Events, nvidia.Throttle, nvidia.More, nvidia.Fields}
	return prelude + fmt.Sprintf(hardwareProbe, strings.Join(queries, " "), maxTool, maxToolBytes, within)
}

const (
	toolWithin   = 20      // seconds that one tool has
	maxTool      = 4000    // lines of one tool's answer that are sent
	maxToolBytes = 1 << 20 // bytes of it
)

// In ask the answer goes by as it comes, so that no shell holds it; its end is a line of its own, and the status
// comes by descriptor 3.
const hardwareProbe = `within=
if have nvidia-smi || have rocminfo || [ -x /opt/rocm/bin/rocminfo ] || have ibv_devinfo; then
  if ! have timeout; then :; elif timeout -k 1 5 true 2>/dev/null; then within="timeout -k 2 %[4]d"; else within="timeout %[4]d"; fi
fi
ask() { if ! have "$1"; then echo "-- status 127"; return; fi
  { r=$({ { $within "$@" 2>&1 3>&- 4>&-; echo $? >&3; } 2>/dev/null | head -c %[3]d | head -n %[2]d >&4; } 3>&1); } 4>&1
  echo; echo "-- status $r"; }
echo "== nvidia"
if have nvidia-smi; then
  for q in %[1]s; do
    a=$(ask nvidia-smi --query-gpu="$q" --format=csv)
    case $a in *"not a valid field"*) ;; *) break;; esac
  done
  printf '%%s\n' "$a"
  case $a in *"-- status 124"|*"-- status 137"|*"-- status 141") ;; *) # one that hangs or never ends is not asked again
  echo "== nvidia-list"; ask nvidia-smi -L
  echo "== nvidia-links"; ask nvidia-smi nvlink -s
  echo "== nvidia-topology"; ask nvidia-smi topo -m;; esac
else echo "-- status 127"; fi
echo "== rocminfo"; if have rocminfo || [ ! -x /opt/rocm/bin/rocminfo ]; then ask rocminfo; else ask /opt/rocm/bin/rocminfo; fi
echo "== kfd"
for d in /sys/class/kfd/kfd/topology/nodes/*; do
  [ -r "$d/properties" ] || continue
  echo "node ${d##*/}"
  while read -r k v _; do case $k in simd_count|location_id|domain|drm_render_minor|unique_id|gfx_target_version) echo "$k $v";; esac; done <"$d/properties"
done
echo "== nodes"; for d in /dev/nvidiactl /dev/nvidia-uvm /dev/nvidia[0-9]* /dev/kfd /dev/dri/renderD* /dev/infiniband/uverbs*; do if [ -c "$d" ]; then if [ -r "$d" ] && [ -w "$d" ]; then echo "$d"; else echo "$d closed"; fi; fi; done
echo "== numa"; for d in /sys/devices/system/node/node[0-9]*; do c=; { read -r c <"$d/cpulist"; } 2>/dev/null && echo "${d##*/} $c"; done
echo "== pci"
for d in /sys/bus/pci/devices/*; do
  c=; { read -r c <"$d/class"; } 2>/dev/null
  case $c in 0x02*|0x03*|0x12*) ;; *) continue;; esac
  v= i= n= w= m= s= t=
  { read -r v <"$d/vendor"; read -r i <"$d/device"; read -r n <"$d/numa_node"; read -r w <"$d/current_link_width"; read -r m <"$d/max_link_width"; read -r s <"$d/current_link_speed"; read -r t <"$d/max_link_speed"; } 2>/dev/null
  at=$(cd -P "$d" 2>/dev/null && pwd -P)
  echo "${d##*/}|$c|$v|$i|$n|$w|$m|$s|$t|$at"
done
echo "== rdma"
for d in /sys/class/infiniband/*; do
  [ -d "$d" ] || continue
  f= b= g= n= at=
  { read -r f <"$d/fw_ver"; read -r b <"$d/board_id"; read -r g <"$d/node_guid"; read -r n <"$d/device/numa_node"; } 2>/dev/null
  at=$(cd -P "$d/device" 2>/dev/null && pwd -P)
  echo "device ${d##*/}|$f|$b|$g|${at##*/}|$n"
  for p in "$d"/ports/*; do
    s= y= r= l= e=
    { read -r s <"$p/state"; read -r y <"$p/phys_state"; read -r r <"$p/rate"; read -r l <"$p/link_layer"; read -r e <"$p/gid_attrs/ndevs/0"; } 2>/dev/null
    echo "port ${p##*/}|$s|$y|$r|$l|$e"
    for x in "$p"/gids/*; do
      g=; { read -r g <"$x"; } 2>/dev/null
      case $g in ''|0000:0000:0000:0000:0000:0000:0000:0000) continue;; esac
      t= e=; { read -r t <"$p/gid_attrs/types/${x##*/}"; read -r e <"$p/gid_attrs/ndevs/${x##*/}"; } 2>/dev/null
      echo "gid ${x##*/}|$g|$t|$e"
    done
  done
done
echo "== devinfo"; if [ -d /sys/class/infiniband ] && have ibv_devinfo; then ask ibv_devinfo -v; else echo "-- status 127"; fi
echo "== end"
`
