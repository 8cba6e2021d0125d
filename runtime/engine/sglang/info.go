package sglang

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/narwhal-fleet/narwhal/runtime/engine"
)

// Info is the part of an engine's description of itself that narwhal uses. Members that the
// engine does not name are zero.
type Info struct {
	Version string `json:"version"`
	// Role of the live process: prefill, decode or null. It is what the scheduler says where that
	// differs from the launch's arguments, as after a switch.
	Role string `json:"role"`
	// PageSize in tokens; MaxTokens is the room of the KV cache.
	PageSize  int    `json:"page_size"`
	MaxTokens int    `json:"max_total_num_tokens"`
	Dtype     string `json:"kv_cache_dtype"`
	// PrefixCaching is false where the radix cache is disabled.
	PrefixCaching bool `json:"prefix_caching"`
	// BootstrapPort of a prefilling process as launched.
	BootstrapPort int `json:"disaggregation_bootstrap_port"`
	// RoleSwitch reports whether the process was launched with role switching.
	RoleSwitch bool `json:"enable_pd_role_switch"`
	// ProcessStart in seconds since the epoch; 0 where the engine does not tell, as real ones.
	ProcessStart float64 `json:"process_start_time_seconds"`
	// Geometry is nil where the engine does not tell.
	Geometry *engine.Geometry `json:"cache_geometry"`
}

// ServerInfo asks an engine to describe itself, under the older name of the route too.
func ServerInfo(ctx context.Context, c *engine.Client) (Info, error) {
	var w wireInfo
	if err := renamedGet(ctx, c, &w, "/server_info", "/get_server_info"); err != nil {
		return Info{}, err
	}
	return w.info(), nil
}

// Model is the engine's description of its model.
type Model struct {
	Path       string `json:"model_path"`
	Tokenizer  string `json:"tokenizer_path"`
	Generation bool   `json:"is_generation"`
}

// ModelInfo asks for the model, under the older name of the route too.
func ModelInfo(ctx context.Context, c *engine.Client) (Model, error) {
	var m Model
	if err := renamedGet(ctx, c, &m, "/model_info", "/get_model_info"); err != nil {
		return Model{}, err
	}
	m.Path, m.Tokenizer = engine.Printable(m.Path, 512), engine.Printable(m.Tokenizer, 512)
	return m, nil
}

// renamedGet asks under the old name where the engine does not know the new one.
func renamedGet(ctx context.Context, c *engine.Client, out any, now, old string) error {
	err := c.GetJSON(ctx, now, out)
	var se *engine.StatusError
	if errors.As(err, &se) && se.Status == http.StatusNotFound {
		err = c.GetJSON(ctx, old, out)
	}
	return err
}

// wireInfo has the launch's arguments at top level and the schedulers' states in a list.
type wireInfo struct {
	Version       string           `json:"version"`
	Mode          string           `json:"disaggregation_mode"`
	PageSize      int              `json:"page_size"`
	MaxTokens     int              `json:"max_total_num_tokens"`
	Dtype         string           `json:"kv_cache_dtype"`
	NoRadix       bool             `json:"disable_radix_cache"`
	BootstrapPort int              `json:"disaggregation_bootstrap_port"`
	RoleSwitch    bool             `json:"enable_pd_role_switch"`
	ProcessStart  float64          `json:"process_start_time_seconds"`
	Geometry      *engine.Geometry `json:"cache_geometry"`
	States        []struct {
		Mode string `json:"disaggregation_mode"`
	} `json:"internal_states"`
}

func (w wireInfo) info() Info {
	i := Info{
		Version: engine.Printable(w.Version, 128), Role: w.Mode, PageSize: w.PageSize, MaxTokens: w.MaxTokens,
		Dtype: engine.Printable(w.Dtype, 64), PrefixCaching: !w.NoRadix, BootstrapPort: w.BootstrapPort,
		RoleSwitch: w.RoleSwitch, ProcessStart: w.ProcessStart, Geometry: w.Geometry,
	}
	if len(w.States) > 0 && w.States[0].Mode != "" {
		i.Role = w.States[0].Mode
	}
	return i
}

// Role is that of the live process.
func (dialect) Role(ctx context.Context, c *engine.Client) (string, error) {
	i, err := ServerInfo(ctx, c)
	if err != nil {
		return "", err
	}
	switch i.Role {
	case engine.RolePrefill, engine.RoleDecode, engine.RoleNone:
		return i.Role, nil
	}
	return "", fmt.Errorf("read role: engine names %q", engine.Printable(i.Role, 64))
}

// SwitchRole asks the process to change its role; see engine.RoleSwitched for a refusal.
func (dialect) SwitchRole(ctx context.Context, c *engine.Client, r engine.RoleSwitch) (engine.RoleSwitched, error) {
	return c.SwitchRole(ctx, r)
}

// Identity is the version and, where the engine tells it, the process's start. A real engine does
// not: ProcessStart is then 0, and the sidecar beside it has to say.
func (dialect) Identity(ctx context.Context, c *engine.Client) (engine.Identity, error) {
	i, err := ServerInfo(ctx, c)
	if err != nil {
		return engine.Identity{}, err
	}
	if i.Version == "" {
		return engine.Identity{}, errors.New("read version: engine named none")
	}
	return engine.Identity{Version: i.Version, ProcessStart: i.ProcessStart}, nil
}

// Layout has pages for blocks. Bytes per block are known only with the geometry.
func (dialect) Layout(ctx context.Context, c *engine.Client) (engine.CacheLayout, error) {
	i, err := ServerInfo(ctx, c)
	if err != nil {
		return engine.CacheLayout{}, err
	}
	if missing := i.missing(); len(missing) > 0 {
		return engine.CacheLayout{}, fmt.Errorf("read layout: engine does not name %s", strings.Join(missing, ", "))
	}
	l := engine.CacheLayout{
		BlockSize: i.PageSize, Blocks: i.MaxTokens / i.PageSize, Dtype: i.Dtype, PrefixCaching: i.PrefixCaching,
	}
	if g := i.Geometry; g != nil && g.BytesPerToken() > 0 {
		l.Geometry, l.BytesPerBlock, l.Source = g, g.BytesPerToken()*int64(i.PageSize), engine.SourceGeometry
	}
	return l, nil
}

func (i Info) missing() (names []string) {
	if i.PageSize < 1 {
		names = append(names, "page_size")
	}
	if i.MaxTokens < 1 {
		names = append(names, "max_total_num_tokens")
	}
	return names
}

// Ready asks /ready, and /health of a version that has no such route.
func (dialect) Ready(ctx context.Context, c *engine.Client) error {
	err := c.Ready(ctx)
	var se *engine.StatusError
	if errors.As(err, &se) && se.Status == http.StatusNotFound {
		return c.Health(ctx)
	}
	return err
}
