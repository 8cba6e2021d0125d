package engines

import (
	"os"
	"strings"
	"testing"

	"github.com/narwhal-fleet/narwhal/gates/engines/cause"
)

// TestDocumented: docs/gates/C.md has a line for each code, each evidence key and each step.
func TestDocumented(t *testing.T) {
	b, err := os.ReadFile("../../docs/gates/C.md")
	if err != nil {
		t.Fatal(err)
	}
	doc := string(b)
	for _, c := range cause.Causes {
		if !strings.Contains(doc, "\n| `"+c.Code+"` | ") {
			t.Errorf("docs/gates/C.md says nothing of %s", c.Code)
		}
	}
	for _, code := range []string{"port-taken", "engine-not-ready", "engine-identity", "launch-differs", "listener-foreign", "listener-missing", "listener-unproven", "container-gone", "container-foreign",
		"container-image", "container-network", "container-writes", "container-model", "model-differs", "version-differs", "cache-size-unknown", "versions-differ", "model-path-differs",
		"output-differs", "cache-layout-differs", "cache-ranks-differ"} {
		if !strings.Contains(doc, "\n| `"+code+"` | ") {
			t.Errorf("docs/gates/C.md says nothing of %s", code)
		}
	}
	for _, kind := range []string{"ports/{e}", "launch/{e}", "rank/{e}/{r}", "joined/{e}/{r}", "live/{e}", "listener/{e}", "container/{e}", "cache/{e}"} {
		if n := strings.Count(doc, "\n| `C/"+kind+"` | "); n != 3 {
			t.Errorf("docs/gates/C.md has %d lines for C/%s: evidence, step and bond are three", n, kind)
		}
	}
}
