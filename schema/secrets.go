package schema

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/narwhal-fleet/narwhal/fleet"
)

var secretName = regexp.MustCompile(`(?i)(password|passwd|passphrase|secret|token|api[-_]?key|private[-_]?key|access[-_]?key|credential)`)

// keyName is a name of which KEY is a whole word.
var keyName = regexp.MustCompile(`(?i)(^|_)keys?($|_)`)

// publicNames look like secrets and are none.
var publicNames = regexp.MustCompile(`(?i)(tokenizer|max_.*tokens?|tokens_per|num_.*tokens?|token_ids?$|public_?key|_path$|_file$|_dir$|_env$)`)

// looksSecret reports whether the value of an option of that name is secret.
func looksSecret(name string) bool {
	return secretName.MatchString(name) && !publicNames.MatchString(name)
}

// secretVariable reports whether the value of a variable of that name is secret.
func secretVariable(name string) bool {
	return (secretName.MatchString(name) || keyName.MatchString(name)) && !publicNames.MatchString(name)
}

// secretForms are texts that are secret whatever their field: private keys, the tokens of
// well-known services, bearer values.
var secretForms = regexp.MustCompile(`-----BEGIN [A-Z ]*PRIVATE|\bhf_[A-Za-z0-9]{6,}|\bsk-[A-Za-z0-9_-]{6,}|\bgh[pousr]_[A-Za-z0-9]{16,}|\bgithub_pat_[A-Za-z0-9_]{16,}|\bAKIA[0-9A-Z]{16}\b|(?i:\bbearer\s+[^\s$&{"']\S*)`)

// holdsSecret reports whether a text has the form of a secret.
func holdsSecret(s string) bool {
	for _, m := range secretForms.FindAllString(s, -1) {
		if !strings.HasPrefix(m, "sk-ssh-") && !strings.HasPrefix(m, "sk-ecdsa-") { // names of SSH key types
			return true
		}
	}
	return false
}

// hidden stands in a message for a text that may be secret.
func hidden(s string) string {
	return fmt.Sprintf("a text of %d characters that is not shown", utf8.RuneCountInString(s))
}

var (
	reference = regexp.MustCompile(`^(\$\{[^}]*\}|\$[A-Za-z_][A-Za-z0-9_]*|\{[a-z][a-z_]*\}|env:.+|file:.+)$`)
	plainWord = regexp.MustCompile(`(?i)^([0-9]{1,9}(\.[0-9]+)?|true|false|none|null|auto)$`)
	// wordy secrets may well be a number or an ordinary word.
	wordy   = regexp.MustCompile(`(?i)passw|secret|passphrase`)
	setting = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_]*)=(.*)$`)
)

// literalSecret reports whether a value is neither a reference nor a plain setting.
func literalSecret(name, value string) bool {
	value = strings.Trim(value, `"'`)
	if value == "" || reference.MatchString(value) {
		return false
	}
	return !plainWord.MatchString(value) || wordy.MatchString(name)
}

// launchSecrets reports literal secrets in the environment and command of a launch.
func (c checker) launchSecrets(name string, l fleet.Launch) {
	p := deployPath("launch", name)
	for _, v := range slices.Sorted(maps.Keys(l.Env)) {
		if secretVariable(v) && literalSecret(v, l.Env[v]) || holdsSecret(l.Env[v]) {
			c.literal(p.add(key("env"), key(v)), l.Env[v], "it would be stored with the record", fmt.Sprintf(`move it: secrets: {%s: "env:%s"}`, clip(v), clip(v)))
		}
	}
	for _, i := range secretArguments(l.Argv) {
		c.literal(p.add(key("argv"), at(i)), l.Argv[i], "it would be stored with the record and show in the host's process list",
			`give it by an environment variable: secrets: {NAME: "env:NAME"}`)
	}
	for _, v := range slices.Sorted(maps.Keys(l.Secrets)) {
		c.secret(p.add(key("secrets"), key(v)), l.Secrets[v])
	}
}

func (c checker) literal(p trail, text, why, hint string) {
	if c.rep.isBlamed(p) {
		return
	}
	c.rep.add(fault{rule: "secret-literal", path: p, got: hidden(text), want: "a reference under secrets",
		says: "looks like a literal secret; " + why, hint: hint})
}

// secretArguments returns the words of a command that hold a literal secret. A word of
// several words is a command of a shell.
func secretArguments(argv []string) []int {
	found := map[int]bool{}
	option := "" // a secret's option whose value comes next
	for i, word := range argv {
		if holdsSecret(word) {
			found[i] = true
		}
		for _, w := range strings.Fields(word) {
			w = strings.TrimLeft(w, `"'`)
			if option != "" && !strings.HasPrefix(w, "-") && literalSecret(option, w) {
				found[i] = true
			}
			option = ""
			name, value, inline := strings.Cut(w, "=")
			switch {
			case strings.HasPrefix(w, "-"):
				name = strings.ReplaceAll(strings.TrimLeft(name, "-"), "-", "_")
				if !looksSecret(name) {
					continue
				}
				if !inline {
					option = name
				} else if literalSecret(name, value) {
					found[i] = true
				}
			case setting.MatchString(w) && secretVariable(name) && literalSecret(name, value):
				found[i] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// hostSecrets checks the references of a host.
func (c checker) hostSecrets(id string, h fleet.Host) {
	c.secret(deployPath("hosts", id, "passphrase"), h.Passphrase)
	c.secret(deployPath("hosts", id, "password"), h.Password)
}

// secret reports a secret that is no reference. Its value is never shown.
func (c checker) secret(p trail, ref fleet.SecretRef) {
	scheme, name, ok := ref.Split()
	if ref == "" || ok && (scheme == "file" || variableName.MatchString(name)) || c.rep.isBlamed(p) {
		return
	}
	c.rep.add(fault{rule: "secret-literal", path: p, got: hidden(string(ref)), want: "env:NAME or file:PATH",
		says: "must be a reference, env:NAME or file:PATH", hint: "put the secret into a variable or file; if this was the secret itself, replace it: it stood in a file"})
}

// secretPlace reports whether a path may hold a secret, key material or a value that could be either.
func secretPlace(p trail) bool {
	for i, s := range p {
		switch s.name {
		case "passphrase", "password", "secrets", "engine_api_key_env":
			return true
		case "control_token", "tenants", "ca", "cert":
			return i >= 3 && p[0].name == "deploy" && p[1].name == "router"
		case "identity", "known_hosts", "host_keys", "env", "argv":
			return i >= 2 && p[0].name == "deploy"
		case "key", "trust":
			return p[0].name == "deploy" && (i == 2 && p[1].name == "sign" || i == 4 && p[1].name == "router")
		}
	}
	return false
}
