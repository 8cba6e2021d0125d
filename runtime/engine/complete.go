package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// CompletionRequest is the body of a buffered completion. Prompt ids are used when Prompt is "".
type CompletionRequest struct {
	Model     string
	Prompt    string
	PromptIDs []int
	MaxTokens int
	// Temperature 0 is greedy.
	Temperature float64
	// IgnoreEOS runs to MaxTokens.
	IgnoreEOS bool
	// Handoff makes this leg 2; the zero value runs unsplit.
	Handoff Handoff
	// RequestID goes out as X-Request-Id; "" sends none.
	RequestID string
}

// Body is the request as JSON, token ids asked for.
func (r CompletionRequest) Body() ([]byte, error) {
	m := map[string]any{
		"max_tokens": r.MaxTokens, "temperature": r.Temperature, "return_token_ids": true,
	}
	if r.Model != "" {
		m["model"] = r.Model
	}
	if r.Prompt != "" {
		m["prompt"] = r.Prompt
	} else {
		m["prompt"] = r.PromptIDs
	}
	if r.IgnoreEOS {
		m["ignore_eos"] = true
	}
	if !r.Handoff.Empty() {
		m["kv_transfer_params"] = r.Handoff.Raw
	}
	b, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("write completion request: %w", err)
	}
	return b, nil
}

// Completion is a buffered answer.
type Completion struct {
	ID           string
	Text         string
	TokenIDs     []int
	PromptIDs    []int
	FinishReason string
	Usage        Usage
	// Raw is the whole answer; it holds the handoff of a leg 1.
	Raw []byte
}

// Complete runs one buffered completion. A refusal is a *StatusError.
func (c *Client) Complete(ctx context.Context, r CompletionRequest) (Completion, error) {
	body, err := r.Body()
	if err != nil {
		return Completion{}, err
	}
	return c.CompleteBody(ctx, body, r.RequestID)
}

// CompleteBody runs one buffered completion with a ready body.
func (c *Client) CompleteBody(ctx context.Context, body []byte, requestID string) (Completion, error) {
	resp, err := c.Do(ctx, "/v1/completions", body, requestID)
	if err != nil {
		return Completion{}, err
	}
	if err := Refused(resp); err != nil {
		return Completion{}, err
	}
	defer resp.Body.Close()
	raw, err := ReadAll(resp.Body, "completion", c.maxAnswer)
	if err != nil {
		return Completion{}, err
	}
	return parseCompletion(raw)
}

func parseCompletion(raw []byte) (Completion, error) {
	var w struct {
		ID      string `json:"id"`
		Choices []struct {
			Text         string `json:"text"`
			TokenIDs     []int  `json:"token_ids"`
			PromptIDs    []int  `json:"prompt_token_ids"`
			FinishReason string `json:"finish_reason"`
		} `json:"choices"`
		Usage Usage `json:"usage"`
	}
	if err := json.Unmarshal(raw, &w); err != nil {
		return Completion{}, fmt.Errorf("read completion: %w", err)
	}
	if len(w.Choices) == 0 {
		return Completion{}, errors.New("read completion: no choice")
	}
	ch := w.Choices[0]
	return Completion{
		ID: w.ID, Text: ch.Text, TokenIDs: ch.TokenIDs, PromptIDs: ch.PromptIDs,
		FinishReason: ch.FinishReason, Usage: w.Usage, Raw: raw,
	}, nil
}
