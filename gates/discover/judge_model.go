package discover

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates/discover/model"
)

// judgeTree checks one checkpoint folder, and the launches that read it.
func (b *bench) judgeTree(t Tree) {
	b.key = modelKey(b.host)
	if t.Absent || len(t.Model.Files) == 0 {
		b.add("model-absent", t.Dir, "absent, closed or without files", "copy the checkpoint to the host, or change launch.model_dir")
		return
	}
	if len(t.Odd) > 0 {
		b.add("model-entry", t.Dir+" of files and folders", "also "+some(t.Odd), "remove what is neither, and links that lead nowhere")
	}
	if len(t.Unread) > 0 {
		b.add("model-unread", "every file of "+t.Dir, "no digest of "+some(t.Unread), "let the SSH user read the files")
	}
	if len(t.Moved) > 0 {
		b.add("model-changing", t.Dir+" at rest", some(t.Moved)+" changed while it was read", "wait until the copy is done, then run again")
	}
	if len(t.Odd)+len(t.Unread)+len(t.Moved) == 0 && !t.Model.Whole() {
		b.add("model-manifest", "a manifest whose digest follows from its files", t.Model.Root, "run again; narwhal gate verify says whether the record was changed")
	}
	if t.NoConfig != "" {
		b.add("model-config", "a config.json that engines can read", t.NoConfig, "compare the folder with the model's source")
		return
	}
	for _, e := range b.fleet.Engines {
		if l, ok := b.fleet.LaunchOf(e.IID); ok && b.fleet.HostOf(e.IID) == b.host && l.ModelDir == t.Dir && l.Kind != fleet.LaunchSimulated {
			b.judgeLaunch(e.IID, l, t.Config)
		}
	}
}

// judgeLaunch compares a model's configuration with the launch that serves it.
func (b *bench) judgeLaunch(iid string, l fleet.Launch, c model.Config) {
	first := len(b.found)
	if len(c.Code) > 0 {
		f := b.add("model-code", "--trust-remote-code for the model's own program text", "not given; config.json names "+some(c.Code), "read the files, then add the option to the launch")
		if slices.Contains(l.Argv, "--trust-remote-code") {
			f.Want, f.Note = "a model without program text of its own", true
			f.Got = "config.json names " + some(c.Code)
			f.Hint = "engines run these files: read them when the checkpoint changes"
			f.Message = fmt.Sprintf("host %s: the model brings program text that engines run: %s", b.host, some(c.Code))
		}
	}
	if n, ok := number(l.Argv, "--max-model-len", "--context-length"); ok && c.Context > 0 && n > c.Context {
		b.add("model-context", fmt.Sprintf("at most the model's %d tokens of context", c.Context), strconv.Itoa(n), "lower --max-model-len; longer prompts need a rope scaling in config.json")
	}
	if d := option(l.Argv, "--dtype"); d != "" && d != "auto" && c.Dtype != "" && c.Quantized == "" && dtype(d) != dtype(c.Dtype) {
		b.add("model-dtype", "the checkpoint's "+c.Dtype, "--dtype "+d, "leave the option out, or set it to the checkpoint's").Note = true
	}
	if got := l.Env["VLLM_SSM_CONV_STATE_LAYOUT"]; c.Convolution && b.fleet.Engine.Backend != "sglang" && got != "DS" {
		b.add("model-layout", "VLLM_SSM_CONV_STATE_LAYOUT=DS, since layers keep a convolutional state", orNone(got), "set it in the launch's env: engines exchange that state with the KV")
	}
	if off := slices.Contains(l.Argv, "--disable-radix-cache") || option(l.Argv, "--mamba-radix-cache-strategy") != ""; c.Convolution && b.fleet.Engine.Backend == "sglang" && !off {
		b.add("model-layout", "--mamba-radix-cache-strategy no_buffer and --disable-overlap-schedule", "neither", "add them to the launch's argv, or --disable-radix-cache")
	}
	for i := range b.found[first:] {
		b.found[first+i].Engine = iid
	}
}

// dtype gives two names of a number format the same one.
func dtype(s string) string {
	switch s = strings.ToLower(s); s {
	case "half", "fp16":
		return "float16"
	case "bf16":
		return "bfloat16"
	case "float", "fp32":
		return "float32"
	}
	return s
}

// option returns the value of an option in argv, "" without one.
func option(argv []string, name string) string {
	for i, a := range argv {
		if v, ok := strings.CutPrefix(a, name+"="); ok {
			return v
		}
		if a == name && i+1 < len(argv) {
			return argv[i+1]
		}
	}
	return ""
}

func number(argv []string, names ...string) (int, bool) {
	for _, name := range names {
		if n, err := strconv.Atoi(option(argv, name)); err == nil {
			return n, true
		}
	}
	return 0, false
}

// some lists the first few of many.
func some(list []string) string {
	const few = 3
	if len(list) <= few {
		return strings.Join(list, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(list[:few], ", "), len(list)-few)
}

// equalModels compares the checkpoints of all engines: they serve one model. Each tree is
// compared with the first whole one.
func (b *bench) equalModels(s seen) {
	first, at := model.Manifest{}, ""
	for _, id := range b.fleet.WorkHosts() {
		for _, t := range s.models[id].Trees {
			switch {
			case len(t.Model.Files) == 0 || len(t.Unread) > 0:
			case at == "":
				first, at = t.Model, "host "+id
			default:
				d, differ := model.Compare(first, t.Model)
				if !differ {
					continue
				}
				b.host, b.key = id, modelKey(id)
				f := b.add("model-differs", d.A, d.B, "copy the checkpoint anew from one source; engines on unequal weights answer with wrong tokens")
				f.Message = fmt.Sprintf("the checkpoints of %s and host %s differ, first in %s: %s and %s", at, id, d.Path, short(d.A), short(d.B))
				f.Want, f.Got = first.Root, t.Model.Root
			}
		}
	}
}

func short(digest string) string {
	if digest == "" {
		return "absent"
	}
	return fmt.Sprintf("%.12s", digest)
}

// judgeImages checks that the pinned images are there.
func (b *bench) judgeImages(images []Image) {
	b.key = imagesKey(b.host)
	for _, x := range images {
		if x.ID == "" {
			b.add("image-absent", x.Name+" in "+x.Runtime, orNone(x.Why), x.Runtime+" pull "+x.Name+" on the host; its user must reach the runtime")
		} else if !x.Is(x.Name) {
			b.add("image-differs", x.Name, x.ID+" with digests "+orNone(strings.Join(x.Digests, ", ")), "pull the image by its digest")
		}
	}
}
