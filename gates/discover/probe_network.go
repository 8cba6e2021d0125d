package discover

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/narwhal-fleet/narwhal/fleet"
)

// NetworkProbe is the script that lists interfaces, bonds and addresses of a host, and asks
// its kernel for the way to each peer. Peers that are no IP addresses are not asked for.
func NetworkProbe(peers []netip.Addr) string {
	var ask strings.Builder
	for _, p := range peers {
		fmt.Fprintf(&ask, "route get %s\n", p)
	}
	routes := ask.String()
	if routes != "" {
		routes = "if have ip; then ip -j -force -batch - 2>/dev/null <<'NARWHAL_END'\n" + routes + "NARWHAL_END\nfi\n"
	}
	return prelude + fmt.Sprintf(networkProbe, routes)
}

// networkProbe starts one process for the addresses and one for all routes, none where there are none.
const networkProbe = `echo "== links"
if [ -d /sys/class/net ]; then
  for i in /sys/class/net/*; do
    [ -d "$i" ] || continue
    m= o= c= s= d= a= b= n=
    { read -r m <"$i/mtu"; read -r o <"$i/operstate"; read -r c <"$i/carrier"; read -r s <"$i/speed"; read -r d <"$i/duplex"; read -r n <"$i/device/numa_node"; } 2>/dev/null
    if [ -e "$i/master" ]; then a=$(cd -P "$i/master" && pwd -P); fi
    if [ -e "$i/device" ]; then b=$(cd -P "$i/device" && pwd -P); fi
    echo "${i##*/}|$m|$o|$c|$s|$d|${a##*/}|${b##*/}|$n"
  done
else ifconfig -a 2>/dev/null | sed -n 's/^\([a-z0-9]*\):.* mtu \([0-9]*\).*/\1|\2|unknown||||||/p'; fi
echo "== bonds"
for f in /proc/net/bonding/*; do if [ -r "$f" ]; then echo "bond ${f##*/}"; while IFS= read -r l; do echo "$l"; done <"$f"; fi; done
echo "== addresses"
if have ip; then ip -o addr show 2>/dev/null; fi
echo "== routes"
%[1]secho "== end"
`

// fabricAddresses are the addresses that carry the KV of a fleet's engine hosts, by host.
// Those that are names and no IP addresses are left out.
func fabricAddresses(f fleet.Fleet) map[string]netip.Addr {
	out := map[string]netip.Addr{}
	for _, id := range f.EngineHosts() {
		if a, err := netip.ParseAddr(f.FabricAddress(id)); err == nil && a.Zone() == "" {
			out[id] = a
		}
	}
	return out
}

// peers are the addresses of the other engine hosts as seen from one that carries an
// engine; each once, sorted, and none that is its own.
func peers(addresses map[string]netip.Addr, host string) []netip.Addr {
	own, ok := addresses[host]
	if !ok {
		return nil
	}
	set := map[netip.Addr]bool{}
	for _, a := range addresses {
		set[a] = a != own
	}
	var out []netip.Addr
	for a, other := range set {
		if other {
			out = append(out, a)
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return out
}
