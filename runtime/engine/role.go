package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/narwhal-fleet/narwhal/internal/pause"
)

// Roles of a process that has one.
const (
	RolePrefill = "prefill"
	RoleDecode  = "decode"
	// RoleNone is that of a process which serves whole requests.
	RoleNone = "null"
)

// Switcher is implemented by dialects whose role is a state of the live process. Where a
// dialect has none, a role is the caller's label alone.
type Switcher interface {
	// Role reads the live process's role.
	Role(ctx context.Context, c *Client) (string, error)
	// SwitchRole changes it. A refusal is an answer with Success false, not an error.
	SwitchRole(ctx context.Context, c *Client, r RoleSwitch) (RoleSwitched, error)
}

// Tagger is implemented by dialects that carry a leg's id in its body instead of in a header.
type Tagger interface {
	// Tag returns the body with the id, replacing any that it had.
	Tag(body []byte, id string) ([]byte, error)
}

// RoleSwitch asks a process to change its role.
type RoleSwitch struct {
	// NewRole is RolePrefill or RoleDecode.
	NewRole string `json:"new_role"`
	// DecodeGraphMemoryGB is the memory for decode graphs in GB; 0 leaves it to the engine.
	DecodeGraphMemoryGB float64 `json:"decode_cuda_graph_memory_gb,omitempty"`
	// DecodeGraphSizes are the batch sizes to capture; nil leaves them to the engine.
	DecodeGraphSizes []int `json:"decode_cuda_graph_bs,omitempty"`
	// PrepareOnly asks whether the switch would be possible and leaves the role.
	PrepareOnly bool `json:"prepare_only,omitempty"`
}

// RoleSwitched is the engine's answer, success or refusal.
type RoleSwitched struct {
	Success bool   `json:"success"`
	Message string `json:"message"` // printable, bounded; for people only
	OldRole string `json:"old_role"`
	NewRole string `json:"new_role"`
	// SafeToRestore reports whether a process that refused may serve on in its old role. False
	// beside Success false means that it must be restarted.
	SafeToRestore bool `json:"safe_to_restore"`
}

// SwitchRole posts a role switch. Both statuses that carry a typed answer, 200 and 400, give a
// RoleSwitched; any other, and a 400 of another shape, is a *StatusError. It may take as long as
// the engine captures graphs: give ctx a limit of a minute.
func (c *Client) SwitchRole(ctx context.Context, r RoleSwitch) (RoleSwitched, error) {
	body, err := json.Marshal(r)
	if err != nil {
		return RoleSwitched{}, fmt.Errorf("write role switch: %w", err)
	}
	resp, err := c.Do(ctx, "/pd_role_switch", body, "")
	if err != nil {
		return RoleSwitched{}, err
	}
	if resp.StatusCode/100 != 2 && resp.StatusCode != http.StatusBadRequest {
		return RoleSwitched{}, Refused(resp)
	}
	defer resp.Body.Close()
	raw, err := ReadAll(resp.Body, "role switch", maxControlBytes)
	if err != nil {
		return RoleSwitched{}, err
	}
	return parseSwitched(resp.StatusCode, raw)
}

// ErrKeepsRole means that a process refused a role and is as it was, ErrRoleLost that it refused it half
// way and must be restarted.
var (
	ErrKeepsRole = errors.New("it keeps its role")
	ErrRoleLost  = errors.New("role switch failed")
)

// switchPause is between two demands of a process that is not idle yet.
const switchPause = 200 * time.Millisecond

// TakeRole has a process take a role, and again for patience where it is not idle yet. Its reason to refuse
// is in the error.
func TakeRole(ctx context.Context, s Switcher, c *Client, role string, patience time.Duration) error {
	for until := time.Now().Add(patience); ; {
		got, err := s.SwitchRole(ctx, c, RoleSwitch{NewRole: role})
		switch {
		case err != nil:
			return err
		case got.Success:
			return nil
		case !got.SafeToRestore:
			return fmt.Errorf("%w: %s", ErrRoleLost, got.Message)
		case time.Now().After(until) || !pause.For(ctx, switchPause):
			return fmt.Errorf("%w: %s", ErrKeepsRole, got.Message)
		}
	}
}

// parseSwitched holds an answer without "safe_to_restore" for unsafe unless the switch
// succeeded: what is not said is not assumed.
func parseSwitched(status int, raw []byte) (RoleSwitched, error) {
	var w struct {
		Success *bool  `json:"success"`
		Message string `json:"message"`
		Old     string `json:"old_role"`
		New     string `json:"new_role"`
		Safe    *bool  `json:"safe_to_restore"`
	}
	if err := json.Unmarshal(raw, &w); err != nil || w.Success == nil {
		if status/100 != 2 {
			return RoleSwitched{}, ParseStatusError(status, raw)
		}
		if err == nil {
			err = errors.New("no success member")
		}
		return RoleSwitched{}, fmt.Errorf("read role switch: %w", err)
	}
	out := RoleSwitched{
		Success: *w.Success && status/100 == 2, Message: Printable(w.Message, maxMessage),
		OldRole: Printable(w.Old, 64), NewRole: Printable(w.New, 64),
	}
	out.SafeToRestore = out.Success
	if w.Safe != nil {
		out.SafeToRestore = *w.Safe
	}
	return out, nil
}
