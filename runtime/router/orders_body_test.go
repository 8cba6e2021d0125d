package router

import (
	"strings"
	"testing"
)

// Orders of another form name the member at fault.
func TestOrdersNameWhatDoesNotFit(t *testing.T) {
	b := startBed(t, 0, 1, quick())
	for body, want := range map[string]string{
		`{"engines":"d0"}`:      `{"type":"list_type","loc":["body","engines"],"msg":"Input should be a valid list","input":"d0"}`,
		`{"engines":["d0",3]}`:  `"loc":["body","engines",1]`,
		`{"deadline_s":"soon"}`: `"loc":["body","deadline_s"],"msg":"Input should be a valid number","input":"soon"`,
		`{"wave":1}`:            `"loc":["body","wave"]`,
		`{"wave":true`:          `offset 12: it ends within a value`,
	} {
		if a := post(t, limit(t), b.url+"/narwhal/lifecycle/drain", body); a.status != 422 || !strings.Contains(a.body, want) {
			t.Errorf("%s: %d %s", body, a.status, a.body)
		}
	}
}
