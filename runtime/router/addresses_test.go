package router

import (
	"strings"
	"testing"

	"github.com/narwhal-fleet/narwhal/fleet"
)

func TestAddressesAreHidden(t *testing.T) {
	for in, want := range map[string]string{
		"bad at 127.0.0.1:14508 and 10.1.2.3, port 14508":                           "bad at # and #, port 14508",
		"see http://10.0.0.1:8100/v1?x=1 now":                                       "see # now",
		"tcp://host-a:5555 is gone":                                                 "# is gone",
		"[::1]:8100 and [fe80::1%eth0]:80 refused":                                  "# and # refused",
		"host-a.internal:8100, localhost:14108":                                     "#, #",
		"fd00:dead::7, fe80::1%eth0, 2001:db8:0:0:0:0:0:1 and ::1 gone, fe80:: too": "#, #, # and # gone, # too",
		"node-7:8100, worker_3:5600 or 127.1:8100":                                  "#, # or #",
		"node-7.cluster.local, localhost.":                                          "#, #.",
		"HTTPConnectionPool(host='node-7', port=8100): Max retries":                 "HTTPConnectionPool(host='#', port=8100): Max retries",
		"max_tokens:4096, std::string, x:y:z, utils.parse: bad":                     "max_tokens:4096, std::string, x:y:z, utils.parse: bad",
		"max_tokens: 4096 > 2048, ratio 1.5:2":                                      "max_tokens: 4096 > 2048, ratio 1.5:2",
		"version 0.10.2 needs [1:2] and at 12:30:11":                                "version 0.10.2 needs [1:2] and at 12:30:11",
		"This model's maximum context length is 2048.":                              "This model's maximum context length is 2048.",
	} {
		want = strings.ReplaceAll(want, "#", removed)
		if got := scrub(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
	s := &settings{Config: Config{Fleet: fleet.Fleet{Engines: []fleet.Engine{{URL: "http://gpu1:8100"}}}}}
	if got := s.hide("worker gpu1:8100 of gpu1"); got != "worker "+removed+" of gpu1" {
		t.Error(got)
	}
}
