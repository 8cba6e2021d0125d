package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
)

// Health asks for the process's liveness. It says nothing of the transfer path, and a frozen
// engine never answers: give ctx a limit of a second or two.
func (c *Client) Health(ctx context.Context) error {
	body, err := c.get(ctx, "/health")
	if err != nil {
		return err
	}
	defer body.Close()
	_, err = ReadAll(body, "/health", maxControlBytes)
	return err
}

// Ready asks for the readiness that some engines report apart from their liveness.
func (c *Client) Ready(ctx context.Context) error {
	body, err := c.get(ctx, "/ready")
	if err != nil {
		return err
	}
	defer body.Close()
	_, err = ReadAll(body, "/ready", maxControlBytes)
	return err
}

// Version returns the engine's version.
func (c *Client) Version(ctx context.Context) (string, error) {
	var v struct {
		Version string `json:"version"`
	}
	if err := c.GetJSON(ctx, "/version", &v); err != nil {
		return "", err
	}
	if v.Version == "" {
		return "", errors.New("read version: engine named none")
	}
	return Printable(v.Version, 128), nil
}

// Model is one entry of the model list.
type Model struct {
	ID          string `json:"id"`
	Root        string `json:"root"`
	MaxModelLen int    `json:"max_model_len"`
}

// Models returns the served models.
func (c *Client) Models(ctx context.Context) ([]Model, error) {
	var v struct {
		Data []Model `json:"data"`
	}
	if err := c.GetJSON(ctx, "/v1/models", &v); err != nil {
		return nil, err
	}
	return v.Data, nil
}

// Metrics scrapes the engine.
func (c *Client) Metrics(ctx context.Context) (Samples, error) {
	body, err := c.get(ctx, "/metrics")
	if err != nil {
		return Samples{}, err
	}
	defer body.Close()
	s, err := ParseMetrics(body)
	if err != nil {
		return Samples{}, fmt.Errorf("read metrics: %w", err)
	}
	return s, nil
}

// Identity tells one process of an engine from the next.
type Identity struct {
	Version string `json:"version"`
	// ProcessStart in seconds since the epoch, as the engine reports it; 0 where it does not.
	ProcessStart float64 `json:"process_start"`
}

// Same reports whether two readings are of the same process.
func (i Identity) Same(o Identity) bool {
	return i.Version == o.Version && math.Abs(i.ProcessStart-o.ProcessStart) < 1e-3
}

// Identity reads version and process start. An engine that does not report its process start
// is a *MissingError.
func (c *Client) Identity(ctx context.Context) (Identity, error) {
	v, err := c.Version(ctx)
	if err != nil {
		return Identity{}, err
	}
	s, err := c.Metrics(ctx)
	if err != nil {
		return Identity{}, err
	}
	start, ok := s.Sum("process_start_time_seconds")
	if !ok {
		return Identity{}, &MissingError{Names: []string{"process_start_time_seconds"}}
	}
	return Identity{Version: v, ProcessStart: start}, nil
}

// TokenizeRequest counts a prompt or a conversation: set one of the two.
type TokenizeRequest struct {
	Model               string          `json:"model,omitempty"`
	Prompt              string          `json:"prompt,omitempty"`
	Messages            json.RawMessage `json:"messages,omitempty"`
	Tools               json.RawMessage `json:"tools,omitempty"`
	AddGenerationPrompt *bool           `json:"add_generation_prompt,omitempty"`
}

// Tokens is the answer of a tokenize call.
type Tokens struct {
	Count       int   `json:"count"`
	MaxModelLen int   `json:"max_model_len"`
	IDs         []int `json:"tokens"`
}

// Tokenize asks the engine's tokenizer.
func (c *Client) Tokenize(ctx context.Context, r TokenizeRequest) (Tokens, error) {
	var t Tokens
	err := c.PostJSON(ctx, "/tokenize", r, &t)
	return t, err
}

// TokenizeBody sends a ready body, as the router has it, to the tokenizer.
func (c *Client) TokenizeBody(ctx context.Context, body []byte) (Tokens, error) {
	var t Tokens
	err := c.PostJSON(ctx, "/tokenize", json.RawMessage(body), &t)
	return t, err
}
