package attest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

// EngineIdentity says which live process an engine is.
type EngineIdentity struct {
	Version      string
	ProcessStart float64 // seconds since 1970, as the engine reports it
	PID          int     // 0 = not known, with BootID and StartTicks
	BootID       string  // of the host's kernel
	StartTicks   int64   // field 22 of /proc/<pid>/stat: clock ticks since boot
}

// IdentityReader reads the identity of one live engine.
type IdentityReader interface {
	Identity(ctx context.Context) (EngineIdentity, error)
}

// HTTPIdentity reads an engine over its own HTTP surface: /version, and
// process_start_time_seconds of /metrics; where there is no /version, /server_info. Answers are bounded; redirects and
// proxies are not followed.
type HTTPIdentity struct {
	Base string // http://address:port
	// PID adds the process's own identity from this host's /proc; 0 = leave it out.
	PID int
	// Client is nil for a client with a 5 s limit.
	Client *http.Client
}

var identityClient = &http.Client{
	Timeout:       5 * time.Second,
	Transport:     &http.Transport{MaxIdleConnsPerHost: 1, IdleConnTimeout: 30 * time.Second, ResponseHeaderTimeout: 5 * time.Second},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// Identity reads version and process start. With a PID it reads the process
// before and after, so that a restart in between is an error and no mixture.
func (h HTTPIdentity) Identity(ctx context.Context) (EngineIdentity, error) {
	var id EngineIdentity
	if h.PID != 0 {
		var err error
		if id, err = ProcessIdentity(h.PID); err != nil {
			return EngineIdentity{}, err
		}
	}
	var err error
	id.Version, err = h.version(ctx)
	if errors.Is(err, errNoRoute) {
		id.Version, id.ProcessStart, err = h.described(ctx, id.StartTicks)
	} else if err == nil {
		id.ProcessStart, err = h.processStart(ctx)
	}
	if err != nil {
		return EngineIdentity{}, err
	}
	if h.PID != 0 {
		again, err := ProcessIdentity(h.PID)
		if err != nil {
			return EngineIdentity{}, err
		}
		if again.StartTicks != id.StartTicks {
			return EngineIdentity{}, errors.New("read identity: the process changed meanwhile")
		}
	}
	return id, nil
}

func (h HTTPIdentity) get(ctx context.Context, path string, read func(io.Reader) error) error {
	client := h.Client
	if client == nil {
		client = identityClient
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimRight(h.Base, "/")+path, nil)
	if err != nil {
		return fmt.Errorf("read identity: %w", err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("read identity: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	if err := answered(path, resp.StatusCode); err != nil {
		return err
	}
	if err := read(resp.Body); err != nil {
		return fmt.Errorf("read identity: %s: %w", path, err)
	}
	return nil
}

func (h HTTPIdentity) version(ctx context.Context) (version string, err error) {
	err = h.get(ctx, "/version", func(r io.Reader) error {
		b, err := io.ReadAll(io.LimitReader(r, MaxIdentity+1))
		if err != nil {
			return err
		}
		version, err = parseVersion(b)
		return err
	})
	return version, err
}

func parseVersion(b []byte) (string, error) {
	if len(b) > MaxIdentity {
		return "", errors.New("the answer is too long")
	}
	var v struct {
		Version string `json:"version"`
	}
	if err := json.Unmarshal(b, &v); err != nil {
		return "", err
	}
	if v.Version == "" || len(v.Version) > 256 {
		return "", errors.New("no version in the answer")
	}
	return v.Version, nil
}

func (h HTTPIdentity) processStart(ctx context.Context) (start float64, err error) {
	err = h.get(ctx, "/metrics", func(r io.Reader) error {
		start, err = parseProcessStart(io.LimitReader(r, MaxMetrics))
		return err
	})
	return start, err
}

const startMetric = "process_start_time_seconds"

// parseProcessStart takes the first sample of the metric.
func parseProcessStart(r io.Reader) (float64, error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 64<<10)
	for lines.Scan() {
		rest, ok := bytes.CutPrefix(lines.Bytes(), []byte(startMetric))
		if !ok || len(rest) == 0 || rest[0] != ' ' && rest[0] != '{' {
			continue
		}
		if rest[0] == '{' {
			rest = rest[bytes.LastIndexByte(rest, '}')+1:]
		}
		fields := bytes.Fields(rest)
		if len(fields) == 0 {
			return 0, errors.New("the process start has no value")
		}
		start, err := strconv.ParseFloat(string(fields[0]), 64)
		if err != nil || !finitePositive(start) {
			return 0, errors.New("the process start is not a positive number")
		}
		return start, nil
	}
	if err := lines.Err(); err != nil {
		return 0, err
	}
	return 0, errors.New("no " + startMetric)
}

// ProcessIdentity reads pid, boot id and start ticks of a process of this host (Linux).
func ProcessIdentity(pid int) (EngineIdentity, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return EngineIdentity{}, fmt.Errorf("read process identity: %w", err)
	}
	ticks, err := startTicks(stat)
	if err != nil {
		return EngineIdentity{}, fmt.Errorf("read process identity: %w", err)
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return EngineIdentity{}, fmt.Errorf("read process identity: %w", err)
	}
	return EngineIdentity{PID: pid, BootID: strings.TrimSpace(string(boot)), StartTicks: ticks}, nil
}

// startTicks takes field 22. Field 2, in parentheses, may hold anything.
func startTicks(stat []byte) (int64, error) {
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 20 {
		return 0, errors.New("stat is too short")
	}
	if state := string(fields[0]); state == "Z" || state == "X" {
		return 0, errors.New("the process has ended")
	}
	return strconv.ParseInt(string(fields[19]), 10, 64)
}
