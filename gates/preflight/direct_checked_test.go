package preflight

import (
	"testing"

	"github.com/narwhal-fleet/narwhal/gates/record"
)

// TestChecksSayWhyTheyFailed gives each failed check its reason, and leaves notes and other checks alone.
func TestChecksSayWhyTheyFailed(t *testing.T) {
	c := Checked{Checks: []Check{
		{Check: "profile", Engine: "d0", State: CheckPassed, key: ProfileKey("d0")},
		{Check: "engine", Engine: "d0", State: CheckPassed, Says: "version 1", key: LookKey("d0")},
		{Check: "engine", Engine: "d1", State: CheckPassed, Says: "version 2", key: LookKey("d1")},
	}}
	c.settle([]record.Finding{
		{Code: "first", Want: "a", Got: "b", Evidence: string(ProfileKey("d0"))},
		{Code: "second", Want: "c", Got: "d", Evidence: string(ProfileKey("d0"))},
		{Code: "other", Want: "e", Got: "f", Evidence: string(LookKey("d0"))},
		{Code: "noted", Want: "g", Got: "h", Evidence: string(LookKey("d1")), Note: true},
	})
	for i, want := range []Check{
		{State: CheckFailed, Says: "first: got b, want a"},
		{State: CheckFailed, Says: "version 1; other: got f, want e"},
		{State: CheckPassed, Says: "version 2"},
	} {
		if got := c.Checks[i]; got.State != want.State || got.Says != want.Says {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
}
