package preflight

import (
	"os"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/runtime/engine"
)

// keyed are a client's options with the key that a variable holds.
func keyed(variable string) engine.Options {
	if variable == "" {
		return engine.Options{}
	}
	return engine.Options{Key: fleet.NewSecret(os.Getenv(variable))}
}

// withKey gives a step's command the engines' key. A request names the variable, never the key.
func withKey(f fleet.Fleet, s gates.Step) gates.Step {
	if name := f.Engine.EngineAPIKeyEnv; name != "" {
		s.Secrets = map[string]fleet.SecretRef{name: fleet.SecretRef("env:" + name)}
	}
	return s
}
