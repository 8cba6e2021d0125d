package look

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// configures names environment variables that change how an engine works; secret names
// those that are left out of every digest.
var (
	configures = regexp.MustCompile(`^(VLLM|SGLANG|SGL|NIXL|UCX|MOONCAKE|MC|LMCACHE|NCCL|RCCL|CUDA|NVIDIA|HIP|HSA|ROCR|GPU|TORCH|PYTORCH|TRITON|FLASHINFER|OMP|HF|TRANSFORMERS|LD)_|^PYTHONHASHSEED$`)
	secret     = regexp.MustCompile(`(?i)KEY|TOKEN|SECRET|PASS|CRED|AUTH`)
)

// configuration is what the digest of an engine's configuration is over.
type configuration struct {
	Argv  []string          `json:"argv"`
	Env   []string          `json:"env"`
	Files map[string]string `json:"files"` // path → SHA-256
}

// config is the digest of a process's command line, of the environment that configures
// engines, and of the files that configure it. Values of secrets are left out.
func (o *Observer) config(pid int) Seen {
	argv, err := read(o.root.of(pid, "cmdline"))
	if err != nil {
		return unknown("read the command line: %s", why(err))
	}
	env, err := read(o.root.of(pid, "environ"))
	if err != nil {
		return unknown("read the environment: %s", why(err))
	}
	c := configuration{Argv: withoutSecrets(split(argv)), Env: []string{}, Files: map[string]string{}}
	for _, e := range split(env) {
		if name, _, ok := strings.Cut(e, "="); ok && configures.MatchString(name) && !secret.MatchString(name) {
			c.Env = append(c.Env, e)
		}
	}
	slices.Sort(c.Env)
	files := slices.Clone(o.watch.Configs)
	for _, name := range []string{"config.json", "generation_config.json"} {
		if o.watch.Model != "" {
			files = append(files, filepath.Join(o.watch.Model, name))
		}
	}
	for _, path := range files {
		b, err := read(path)
		if os.IsNotExist(err) && !slices.Contains(o.watch.Configs, path) {
			continue
		}
		if err != nil {
			return unknown("read %s: %s", filepath.Base(path), why(err))
		}
		sum := sha256.Sum256(b)
		c.Files[path] = hex.EncodeToString(sum[:])
	}
	text, err := json.Marshal(c)
	if err != nil {
		return unknown("write the configuration: %v", err)
	}
	sum := sha256.Sum256(text)
	return seen(hex.EncodeToString(sum[:]))
}

func split(b []byte) []string {
	var out []string
	for part := range bytes.SplitSeq(bytes.TrimRight(b, "\x00"), []byte{0}) {
		out = append(out, string(part))
	}
	return out
}

// withoutSecrets masks the values of options that name a secret.
func withoutSecrets(argv []string) []string {
	out := slices.Clone(argv)
	for i, a := range out {
		name, _, joined := strings.Cut(a, "=")
		switch {
		case !strings.HasPrefix(a, "--") || !secret.MatchString(name) || strings.Contains(name, "tokenizer") || strings.Contains(name, "tokens"):
		case joined:
			out[i] = name + "=…"
		case i+1 < len(out) && !strings.HasPrefix(out[i+1], "--"):
			out[i+1] = "…"
		}
	}
	return out
}

// Options finds in a command line what a look needs: the folder of the model, of its
// tokenizer, and files of configuration. Only absolute paths count.
func Options(argv []string) (w Watch) {
	set := map[string]func(string){
		"--model":          func(v string) { w.Model = v },
		"--model-path":     func(v string) { w.Model = v },
		"--tokenizer":      func(v string) { w.Tokenizer = v },
		"--tokenizer-path": func(v string) { w.Tokenizer = v },
		"--config":         func(v string) { w.Configs = append(w.Configs, v) },
		"--chat-template":  func(v string) { w.Configs = append(w.Configs, v) },
	}
	for i, a := range argv {
		name, value, joined := strings.Cut(a, "=")
		if !joined && i+1 < len(argv) {
			value = argv[i+1]
		}
		if a == "serve" && i+1 < len(argv) && filepath.IsAbs(argv[i+1]) && w.Model == "" {
			w.Model = argv[i+1] // vllm serve MODEL
		}
		if f := set[name]; f != nil && filepath.IsAbs(value) {
			f(value)
		}
	}
	return w
}
