package conformance_test

import (
	"bytes"
	"errors"
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/narwhal-fleet/narwhal/runtime/engine"
	"github.com/narwhal-fleet/narwhal/runtime/engine/sglang"
	"github.com/narwhal-fleet/narwhal/runtime/engine/vllm"
)

// An engine that does not say how much it runs is not idle.
func TestStateOfImpossibleNumbers(t *testing.T) {
	for _, c := range []struct {
		dialect       engine.Dialect
		metrics, name string
	}{
		{vllm.New(), "../vllm/testdata/metrics-decode.txt", "vllm:num_requests_running"},
		{sglang.New(), "../sglang/testdata/metrics.txt", "sglang:num_running_reqs"},
	} {
		b, err := os.ReadFile(c.metrics)
		if err != nil {
			t.Fatal(err)
		}
		series := regexp.MustCompile(`(?m)^(` + c.name + `(?:\{.*\})?) .*$`)
		for _, value := range []string{"NaN", "+Inf", "-1", "1e19"} {
			s, err := engine.ParseMetrics(bytes.NewReader(series.ReplaceAll(b, []byte("$1 "+value))))
			if err != nil {
				t.Fatal(err)
			}
			var me *engine.MissingError
			if _, err := c.dialect.State(s); !errors.As(err, &me) || !slices.Equal(me.Names, []string{c.name}) {
				t.Errorf("%s %s: %v", c.name, value, err)
			}
		}
	}
}
