package main

import (
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/attestation"
	"github.com/narwhal-fleet/narwhal/gates/discover"
	"github.com/narwhal-fleet/narwhal/gates/engines"
	"github.com/narwhal-fleet/narwhal/gates/fabric"
	"github.com/narwhal-fleet/narwhal/gates/install"
	"github.com/narwhal-fleet/narwhal/gates/preflight"
	"github.com/narwhal-fleet/narwhal/gates/serve"
)

// pipeline is the order of the gates.
func pipeline() []gates.Gate {
	return []gates.Gate{
		discover.Gate{},
		install.Gate{},
		engines.Gate{},
		fabric.Gate{},
		attestation.Gate{},
		preflight.Gate{},
		serve.Gate{},
	}
}

// hostVerbs are what this binary answers on a host.
func hostVerbs() map[string]gates.HostVerb {
	all := map[string]gates.HostVerb{}
	for _, verbs := range []map[string]gates.HostVerb{
		gates.ProcessVerbs(), install.HostVerbs(), engines.HostVerbs(), fabric.HostVerbs(), attestation.HostVerbs(), preflight.HostVerbs(), serve.HostVerbs(),
	} {
		for name, v := range verbs {
			all[name] = v
		}
	}
	return all
}
