package engines

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// AwayRequest takes away a container or unit of an engine that no client watches any more.
type AwayRequest struct {
	Unit  Holder `json:"unit"`
	Owner string `json:"owner"`
}

// Away says what was taken away: the container's id or the unit's name, "" for nothing.
type Away struct {
	Removed string `json:"removed"`
}

// away removes a container by its id, or stops a unit, once it is known to be this engine's.
// Nothing there is a success; one of another owner is left alone and an error.
func away(ctx context.Context, q AwayRequest) (Away, error) {
	switch h := q.Unit; {
	case h.Container != "":
		return awayContainer(ctx, h, q.Owner)
	case h.Unit != "":
		return awayUnit(ctx, h, q.Owner)
	}
	return Away{}, errors.New("take away an engine: neither a container nor a unit is named")
}

func awayContainer(ctx context.Context, h Holder, owner string) (Away, error) {
	id, whose, err := h.find(ctx)
	if err != nil || id == "" {
		return Away{}, err
	}
	if whose != owner {
		return Away{}, fmt.Errorf("remove %s: it is not narwhal's (label %s is %.80q, not %q): remove or rename it by hand", h, labelOwner, whose, owner)
	}
	if _, err := printed(ctx, h.Runtime, "rm", "--force", id); err != nil {
		if again, _, ferr := h.find(ctx); ferr != nil || again == id {
			return Away{}, fmt.Errorf("remove %s: %w", h, errors.Join(err, ferr))
		}
	}
	return Away{Removed: id}, nil
}

// find returns id and owner of the container, "" when there is none of its name.
func (h Holder) find(ctx context.Context) (id, owner string, err error) {
	out, err := printed(ctx, h.Runtime, "ps", "--all", "--no-trunc", "--filter", "name=^/?"+quoteRE(h.Container)+"$", "--format", "{{.ID}}")
	if err != nil {
		return "", "", err
	}
	id = strings.TrimSpace(string(out))
	if id == "" {
		return "", "", nil
	}
	if !isContainerID(id) {
		return "", "", fmt.Errorf("look for %s: %s answered %.80q", h, h.Runtime, id)
	}
	out, err = printed(ctx, h.Runtime, "container", "inspect", "--format", `{{index .Config.Labels "`+labelOwner+`"}}`, id)
	if err != nil {
		return "", "", err
	}
	return id, strings.TrimSpace(string(out)), nil
}

// quoteRE escapes what a name of the fleet may hold and an expression reads otherwise.
func quoteRE(s string) string { return strings.ReplaceAll(s, ".", `\.`) }

func isContainerID(s string) bool {
	return len(s) == 64 && strings.Trim(s, "0123456789abcdef") == ""
}

func awayUnit(ctx context.Context, h Holder, owner string) (Away, error) {
	out, err := printed(ctx, "systemctl", h.systemctl("show", "--property", "LoadState,ActiveState,Description", h.Unit)...)
	if err != nil {
		return Away{}, err
	}
	p := properties(string(out))
	if p["LoadState"] == "not-found" {
		return Away{}, nil
	}
	if p["Description"] != "narwhal "+owner {
		return Away{}, fmt.Errorf("stop %s: it is not narwhal's (%.80q): choose another deploy.launch.…unit", h, p["Description"])
	}
	if _, err := printed(ctx, "systemctl", h.systemctl("stop", h.Unit)...); err != nil {
		return Away{}, err
	}
	_, _ = printed(ctx, "systemctl", h.systemctl("reset-failed", h.Unit)...) // one that did not fail has none to reset
	return Away{Removed: h.Unit}, nil
}

// properties reads lines "Name=value".
func properties(s string) map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(s) {
		if k, v, ok := strings.Cut(strings.TrimRight(line, "\r\n"), "="); ok {
			out[k] = v
		}
	}
	return out
}
