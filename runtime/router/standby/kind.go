package standby

import (
	"encoding/json"

	"github.com/narwhal-fleet/narwhal/internal/ownfile"
)

// Kind tells a state file, which may be written over: a handoff document of any version.
var Kind = ownfile.Kind{Name: "a router's handoff document", Most: MaxDocument, Is: func(head []byte, whole bool) bool {
	var d struct {
		Schema string `json:"schema"`
	}
	return whole && json.Unmarshal(head, &d) == nil && d.Schema == Schema
}}
