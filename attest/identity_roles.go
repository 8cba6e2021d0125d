package attest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	host "github.com/narwhal-fleet/narwhal/internal/process"
)

// errNoRoute is the answer of an engine that does not know a route.
var errNoRoute = errors.New("no such route")

// described is what an engine that has no /version says of itself: one of SGLang's dialect. Where
// it does not tell when its process started, /proc does, for the process given by id.
func (h HTTPIdentity) described(ctx context.Context, ticks int64) (version string, start float64, err error) {
	read := func(r io.Reader) error {
		b, err := io.ReadAll(io.LimitReader(r, MaxMetrics+1))
		if err != nil {
			return err
		}
		version, start, err = parseDescription(b)
		return err
	}
	if err = h.get(ctx, "/server_info", read); errors.Is(err, errNoRoute) {
		err = h.get(ctx, "/get_server_info", read)
	}
	if err != nil || start > 0 {
		return version, start, err
	}
	if h.PID == 0 {
		return "", 0, errors.New("read identity: the engine does not tell when it started, and no process is named")
	}
	start, err = host.StartedAt(uint64(ticks))
	return version, start, err
}

// parseDescription reads the version, and the process start where it is told.
func parseDescription(b []byte) (version string, start float64, err error) {
	if len(b) > MaxMetrics {
		return "", 0, errors.New("the answer is too long")
	}
	var v struct {
		Version string   `json:"version"`
		Start   *float64 `json:"process_start_time_seconds"`
	}
	if err := json.Unmarshal(b, &v); err != nil {
		return "", 0, err
	}
	if v.Version == "" || len(v.Version) > 256 {
		return "", 0, errors.New("no version in the answer")
	}
	if v.Start == nil || *v.Start == 0 {
		return v.Version, 0, nil
	}
	if !finitePositive(*v.Start) {
		return "", 0, errors.New("the process start is not a positive number")
	}
	return v.Version, *v.Start, nil
}

// answered is nil for 200.
func answered(path string, status int) error {
	switch status {
	case http.StatusOK:
		return nil
	case http.StatusNotFound:
		return fmt.Errorf("read identity: %s answered %d: %w", path, status, errNoRoute)
	}
	return fmt.Errorf("read identity: %s answered %d", path, status)
}
