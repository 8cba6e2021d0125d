package schema

import "github.com/narwhal-fleet/narwhal/fleet"

// backend is what a fleet's engines are, as far as defaults and rules differ.
type backend struct {
	connectors map[string]string // by short name: the contract's name
	connector  string            // default
	dialect    string
}

// backends that the reference registers.
var backends = map[string]backend{
	"vllm":   {map[string]string{"nixl": "NixlConnector"}, "nixl", "vllm"},
	"sglang": {map[string]string{"mooncake": "mooncake"}, "mooncake", "sglang"},
}

// complete fills the defaults that depend on other fields.
func complete(f *fleet.Fleet) {
	b := backends[f.Engine.Backend]
	if f.Engine.Connector == "" {
		f.Engine.Connector = b.connector
	}
	if f.Engine.Dialect == "" {
		f.Engine.Dialect = b.dialect
	}
	if f.Engine.ControlConnections == 0 {
		f.Engine.ControlConnections = max(4, 2*len(f.Engines))
	}
	if c := f.EngineContract; c != nil {
		if c.Connector == "" {
			c.Connector = b.connectors[f.Engine.Connector]
		}
		if c.EnforceHandshakeCompat == nil && f.Engine.Backend == "vllm" {
			yes := true
			c.EnforceHandshakeCompat = &yes
		}
	}
	if f.Deploy != nil {
		for id, h := range f.Deploy.Hosts {
			if h.Address == "" {
				h.Address = id
				f.Deploy.Hosts[id] = h
			}
		}
	}
}

// fold writes an empty path as the folder that it means.
func fold(f *fleet.Fleet) {
	for _, p := range []*string{&f.Profiles.Path, &f.Recovery.StatePath} {
		if *p == "" {
			*p = "."
		}
	}
}

// derived follows narwhal.effective-config version 2.
func derived(f fleet.Fleet) map[string]any {
	control := f.Engine.ControlConnections
	return map[string]any{
		"engine_count":                  len(f.Engines),
		"control_connections":           control,
		"data_keepalive_connections":    max(1, f.Serving.MaxConnections/2),
		"control_keepalive_connections": max(1, control/2),
		"max_concurrent":                f.Serving.MaxConnections,
		"http_retained_limit":           f.Serving.MaxConnections + f.Serving.QueueCapacity,
		"uvicorn_graceful_timeout_s":    int(f.Serving.GracefulTimeoutS),
	}
}
