package discover

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/fleet/remote"
	"github.com/narwhal-fleet/narwhal/gates"
)

// clockScript tells the host's time.
const clockScript = `date +%s.%N 2>/dev/null || date +%s`

// Clock is how far a host's clock stands from the workstation's.
type Clock struct {
	Offset  float64  `json:"offset_s"` // host minus workstation
	Error   float64  `json:"error_s"`  // the offset is this far off at most
	Samples []Sample `json:"samples"`
}

// Sample is one look at the clock.
type Sample struct {
	RoundTrip  float64 `json:"round_trip_s"`
	Offset     float64 `json:"offset_s"`
	Resolution float64 `json:"resolution_s"`
}

// error bounds the sample's offset: the host looked at its clock at some time of the round
// trip.
func (s Sample) error() float64 { return s.RoundTrip/2 + s.Resolution }

// clockSamples is how often a host's clock is looked at unless the first look decides.
const clockSamples = 5

// settled reports whether more looks cannot change the verdict: the offset with its error
// is well within the limit, or the error is small beside it.
func (c Clock) settled(limit time.Duration) bool {
	if limit <= 0 {
		return true
	}
	return c.Error <= limit.Seconds()/20 || math.Abs(c.Offset)+c.Error <= limit.Seconds()/2
}

// add takes a sample in; the one with the least error counts.
func (c *Clock) add(s Sample) {
	if c.Samples = append(c.Samples, s); len(c.Samples) == 1 || s.error() < c.Error {
		c.Offset, c.Error = s.Offset, s.error()
	}
}

type clockArgs struct {
	Host  string         `json:"host"`
	Limit fleet.Duration `json:"limit"`
}

// lookAtClock measures the offset over several round trips.
func lookAtClock(ctx context.Context, env gates.Env, raw json.RawMessage) ([]byte, error) {
	var q clockArgs
	if err := json.Unmarshal(raw, &q); err != nil {
		return nil, fmt.Errorf("read the arguments: %w", err)
	}
	h, err := env.Host(ctx, q.Host)
	if err != nil {
		return nil, err
	}
	var c Clock
	for range clockSamples {
		before := time.Now()
		res, err := h.Run(ctx, remote.Command{Script: clockScript, Limit: lookLimit})
		if err != nil {
			return nil, fmt.Errorf("look at the clock of host %s: %w", q.Host, err)
		}
		after := time.Now()
		told, resolution, err := clock(strings.TrimSpace(string(res.Stdout)))
		if err != nil {
			return nil, fmt.Errorf("look at the clock of host %s: %w", q.Host, err)
		}
		c.add(sample(before, after, told, resolution))
		if c.settled(q.Limit.D()) {
			break
		}
	}
	return json.Marshal(c)
}

const lookLimit = 10 * time.Second

// sample places what the host told at the middle of the round trip. A clock without
// fractions of a second stood half its step later on average.
func sample(before, after time.Time, told float64, resolution float64) Sample {
	trip := after.Sub(before).Seconds()
	middle := float64(before.UnixNano())/1e9 + trip/2
	return Sample{RoundTrip: trip, Offset: told + resolution/2 - middle, Resolution: resolution / 2}
}

// clock reads seconds since the epoch and the step in which they are told. What stands
// behind the point counts only as digits: a date without %N leaves it out or prints it.
func clock(s string) (seconds, resolution float64, err error) {
	whole, part, _ := strings.Cut(s, ".")
	n, err := strconv.ParseUint(whole, 10, 40)
	if err != nil {
		return 0, 0, fmt.Errorf("read the probe's clock: %.40q is no number", s)
	}
	frac, err := strconv.ParseUint(part, 10, 63)
	if err != nil {
		return float64(n), 1, nil
	}
	return float64(n) + float64(frac)/math.Pow10(len(part)), math.Pow10(-len(part)), nil
}
