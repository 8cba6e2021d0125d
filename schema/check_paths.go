package schema

import (
	"encoding/json"
	"fmt"
	"math"
	"path"
	"strings"
)

// paths checks the files that the reference names.
func (c checker) paths() {
	type file struct{ field, value string }
	files := []file{{"profiles.path", c.f.Profiles.Path}, {"recovery.state_path", c.f.Recovery.StatePath}}
	for _, f := range files {
		if says := fileFault(f.value); says != "" {
			c.fault("path-form", f.field, says, "name a file below the working directory, or an absolute path")
		}
	}
	if p := c.f.Engine.FirstTokenCalibrationPath; p != "" {
		f := file{"engine.first_token_calibration_path", p}
		if says := fileFault(p); says != "" {
			c.fault("path-form", f.field, says, "")
		} else if c.opt.Read != nil && c.f.Deploy == nil {
			if _, err := c.opt.Read(p); err != nil {
				c.fault("calibration-missing", f.field, "the file cannot be read; the router would not start", "name a file that the router can read; \"\" means uncalibrated")
			}
		}
		files = append(files, f)
	}
	seen := map[string]string{}
	for _, f := range files {
		if f.value == "" {
			continue
		}
		clean := path.Clean(f.value)
		if first, ok := seen[clean]; ok {
			c.fault("path-shared", f.field, "is the file of "+first+" too; one would overwrite the other", "")
			continue
		}
		seen[clean] = f.field
	}
}

func fileFault(p string) string {
	switch {
	case p == "":
		return "is empty"
	case strings.ContainsRune(p, 0):
		return "holds a NUL character"
	case strings.HasPrefix(path.Clean(p), "/dev/"):
		return "is a device"
	case hasDotDot(p):
		return "holds .. and leaves its folder"
	case strings.HasSuffix(p, "/") || path.Clean(p) == ".":
		return "is a folder"
	}
	return ""
}

func hasDotDot(p string) bool {
	for _, part := range strings.Split(p, "/") {
		if part == ".." {
			return true
		}
	}
	return false
}

// maxProfileBytes bounds a profile file.
const maxProfileBytes = 16 << 20

// floor compares the latency limits with the least that the profiles ever promise: the
// constant terms of prefill(n) = a·n² + b·n + c and of the decode interval.
func (c checker) floor() {
	if c.opt.Read == nil {
		return
	}
	b, err := c.opt.Read(c.f.Profiles.Path)
	if err != nil || len(b) > maxProfileBytes {
		return // profiles are measured later; gate F wants them
	}
	var store struct {
		Schema   string `json:"schema"`
		Profiles []struct {
			IID       string   `json:"iid"`
			TTFT      *float64 `json:"ttft_c"`
			Intercept *float64 `json:"tpot_intercept"`
		} `json:"profiles"`
	}
	if json.Unmarshal(b, &store) != nil || store.Schema != "narwhal.profiles" {
		return
	}
	ttft, tpot := math.Inf(1), math.Inf(1)
	for _, row := range store.Profiles {
		if row.TTFT != nil && row.Intercept != nil {
			ttft, tpot = min(ttft, *row.TTFT), min(tpot, *row.Intercept)
		}
	}
	hint := "raise the limit, or measure again: narwhal gate run --again F"
	if !math.IsInf(ttft, 1) && c.f.SLO.TTFTS <= ttft {
		c.fault("slo-floor", "slo.ttft_s", fmt.Sprintf("%s s is not above %s s, the least of any engine in %s", num(c.f.SLO.TTFTS), num(ttft), clip(c.f.Profiles.Path)), hint)
	}
	if !math.IsInf(tpot, 1) && c.f.SLO.TPOTS <= tpot {
		c.fault("slo-floor", "slo.tpot_s", fmt.Sprintf("%s s is not above %s s, the least of any engine in %s", num(c.f.SLO.TPOTS), num(tpot), clip(c.f.Profiles.Path)), hint)
	}
}
