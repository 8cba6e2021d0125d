package serve

import (
	"context"
	"encoding/json"

	"github.com/narwhal-fleet/narwhal/gates"
)

func collect(_ context.Context, _ gates.Env, _ json.RawMessage) ([]byte, error) { return []byte("x"), nil }
