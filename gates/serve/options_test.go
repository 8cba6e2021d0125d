package serve

import (
	"strings"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
)

func TestOptions(t *testing.T) {
	defaults := fleet.Router{LendFrom: fleet.DefaultLendFrom, PrefixAffinity: true, HTTP: fleet.RouterHTTP{MaxHeaderBytes: 64 << 10, HeaderTimeout: fleet.Duration(10 * time.Second), IdleTimeout: fleet.Duration(2 * time.Minute)},
		Lease: fleet.RouterLease{TTL: fleet.Duration(5 * time.Second), Renew: fleet.Duration(time.Second), Margin: fleet.Duration(time.Second)}, Journal: fleet.RouterJournal{RotateBytes: fleet.DefaultRotateBytes, Keep: fleet.DefaultKeep}}
	if got := options(defaults); len(got) != 0 {
		t.Errorf("defaults give %v", got)
	}
	r := defaults
	r.HTTP.Keepalive, r.HTTP.ContinueStreams, r.HTTP.Tenants, r.HTTP.ControlToken = fleet.Duration(15*time.Second), true, "file:/etc/n/tenants.json", "env:TOKEN"
	r.Lease.Path, r.Journal.RotateBytes, r.Journal.Keep, r.Journal.Lossless = "/srv/lease.json", 64<<20-1, 8, true
	want := "--keep-alive 15 --continue-streams --tenants /etc/n/tenants.json --control-token env:TOKEN --lease-path /srv/lease.json --lease-ttl 5 --lease-renew-interval 1 --lease-safety-margin 1 --journal-max-mb 64 --journal-keep 8 --journal-lossless"
	if got := strings.Join(options(r), " "); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	blind := defaults
	blind.PrefixAffinity = false
	if got := strings.Join(options(blind), " "); got != "--prefix-affinity=false" {
		t.Errorf("without affinity: %s", got)
	}
	never := defaults
	never.Journal.RotateBytes = 0 // 0 = never, which is not what the router does by itself
	if got := strings.Join(options(never), " "); got != "--journal-max-mb 0" {
		t.Errorf("without rotation: %s", got)
	}
	e := fleet.Router{LendFrom: fleet.DefaultLendFrom, PrefixAffinity: true, Journal: defaults.Journal, Lease: fleet.RouterLease{Etcd: &fleet.Etcd{Endpoints: []string{"https://a:2379", "https://b:2379"}, Prefix: "/narwhal/x/", User: "u", Password: "file:/p", CA: "file:/ca"}}}
	if got := strings.Join(options(e), " "); got != "--lease-etcd https://a:2379,https://b:2379 --lease-etcd-key /narwhal/x/lease --lease-etcd-user u --lease-etcd-password file:/p --lease-etcd-ca /ca" {
		t.Errorf("etcd: %s", got)
	}
}
