package serve

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/record"
)

func trial(ctx context.Context, env gates.Env, _ json.RawMessage) ([]byte, error)      { return nil, errors.New("no") }
func journalRows(ctx context.Context, env gates.Env, _ json.RawMessage) ([]byte, error) { return nil, errors.New("no") }
func collect(ctx context.Context, env gates.Env, _ json.RawMessage) ([]byte, error)     { return nil, errors.New("no") }
func (Gate) Judge(v gates.View) []record.Finding                                        { return nil }
