package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/narwhal-fleet/narwhal/runtime/simulate"
)

func TestDeathsAreRead(t *testing.T) {
	got, err := deaths([]string{"3@60", "0@1.5-90"})
	if diff := cmp.Diff([]simulate.Unlike{{Engine: 3, Dies: 60}, {Engine: 0, Dies: 1.5, Back: 90}}, got); diff != "" || err != nil {
		t.Errorf("%v %s", err, diff)
	}
	for _, bad := range []string{"", "3", "x@1", "3@", "3@0", "3@-4", "3@5-", "3@5-x"} {
		if got, err := deaths([]string{bad}); err == nil {
			t.Errorf("%q is %+v", bad, got)
		}
	}
}
