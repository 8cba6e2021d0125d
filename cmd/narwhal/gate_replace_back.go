package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/internal/problem"
)

// newestReplacement is the value of --back that names no line.
const newestReplacement = "newest"

// backStatus is what a replacement takes back.
type backStatus struct {
	record.WayBack
	Written string `json:"written,omitempty"` // file with the document of what runs
	done    bool
}

func backOf(b *record.WayBack) *backStatus {
	if b == nil {
		return nil
	}
	return &backStatus{WayBack: *b}
}

// waveOf reads the engines of --only.
func waveOf(o *gates.ReplaceOptions, only []string) error {
	switch {
	case len(only) == 0:
		return nil
	case !o.Wave:
		return problem.New(problem.Invalid, "invalid_arguments", "--only is of a wave, and --wave is not given", "narwhal gate replace --wave --only IID,…; or narwhal gate replace IID… for one after the other")
	case len(o.Engines) > 0:
		return problem.New(problem.Invalid, "invalid_arguments", "engines are named twice, as arguments and with --only", "give them either way")
	}
	o.Engines, o.Only = only, true
	return nil
}

// wayBack reads --back and what goes with it.
func wayBack(o *gates.ReplaceOptions, back, out string) error {
	if back == "" && out != "" {
		return problem.New(problem.Invalid, "invalid_arguments", "-o is of --back, which is not given", "narwhal gate replace --back -o FILE.json")
	}
	if o.Back = back != ""; !o.Back || back == newestReplacement {
		return nil
	}
	n, err := strconv.ParseInt(back, 10, 64)
	if err != nil || n < 1 {
		return problem.New(problem.Invalid, "invalid_arguments", fmt.Sprintf("--back=%s names no line of the record", clean(back)), "narwhal gate log lists the replacements, each with its line; --back alone is the newest")
	}
	o.Of = n
	return nil
}

// absent refuses a file that is there before anything is done.
func (a *app) absent(out string) error {
	if out == "" {
		return nil
	}
	if _, err := os.Lstat(a.abs(out)); err == nil {
		return problem.New(problem.Invalid, "file_exists", out+" exists", "choose another name")
	}
	return nil
}

// writeBack says what runs now, and writes its fleet document where that is asked for.
func (a *app) writeBack(d *replaceData, f fleet.Fleet, out string) error {
	d.Back.done = true
	if out == "" {
		return nil
	}
	b, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return err
	}
	state, err := writeNew(a.abs(out), append(b, '\n'), false)
	if err != nil {
		return err
	}
	d.Back.Written = out
	a.result.artifacts = append(a.result.artifacts, artifact{"fleet", out, state})
	return nil
}

func (b *backStatus) print(w io.Writer) {
	switch {
	case b == nil:
	case !b.done:
		fmt.Fprintf(w, "  to what ran before the replacement that line %d of the record began\n", b.Of)
	case b.Written != "":
		fmt.Fprintf(w, "  %s is the fleet document of what runs; gate run refuses a file with the launch that was left\n", b.Written)
	case len(b.From) > 0:
		fmt.Fprintf(w, "  the fleet file still has the launch that was left, and gate run refuses it: put the former one into it;\n  objects/%s of the run is the document of what runs\n", b.Fleet.SHA256)
	}
}
