package schema

import (
	"fmt"
	"regexp"
	"strings"
)

// normaliser brings one source to the form that the definitions describe: comment keys
// and null sections go, old names of contract fields become the new ones.
type normaliser struct {
	rep *report
}

// oldContractNames are accepted in place of the new ones.
var oldContractNames = map[string]string{
	"vllm_version":           "engine_version",
	"nixl_version":           "transfer_version",
	"nixl_connector_version": "connector_version",
}

// nullSections may be null, which means absent.
var nullSections = map[string][]string{
	"":              {"controller", "serving", "engine", "recovery", "profiles", "hardware", "engine_contract", "deploy"},
	"controller":    {"thresholds", "reactive"},
	"recovery":      {"health"},
	"engines[]":     {"shared_device"},
	"deploy":        {"defaults", "engines", "launch", "release", "fabric", "profile", "trial", "policy", "sign", "limits"},
	"deploy.router": {"http", "lease", "journal"},
}

func (z normaliser) document(n *node) {
	z.strip(n, nil)
	for at, names := range nullSections {
		dropNulls(section(n, at), names)
	}
	if e := n.get("engines"); e != nil {
		for _, item := range e.items {
			dropNulls(item, nullSections["engines[]"])
		}
	}
	z.contract(n.get("engine_contract"))
}

// section follows a dotted path; "" is the document itself.
func section(n *node, path string) *node {
	if path == "" {
		return n
	}
	for _, name := range strings.Split(path, ".") {
		n = n.get(name)
	}
	return n
}

// strip removes members whose name begins with an underscore.
func (z normaliser) strip(n *node, p trail) {
	for i, item := range n.items {
		z.strip(item, p.add(at(i)))
	}
	kept := n.fields[:0]
	for _, f := range n.fields {
		if strings.HasPrefix(f.name, "_") && !namesData(p) {
			continue
		}
		z.strip(f.value, p.add(key(f.name)))
		kept = append(kept, f)
	}
	n.fields, n.index = kept, nil
}

// namesData reports whether the keys at p are data, in which an underscore means nothing.
func namesData(p trail) bool {
	if len(p) == 0 || p[0].name != "deploy" {
		return false
	}
	last := p[len(p)-1].name
	return len(p) == 2 && last == "engines" || len(p) == 4 && p[1].name == "launch" && (last == "env" || last == "secrets")
}

func dropNulls(n *node, names []string) {
	if n == nil {
		return
	}
	kept := n.fields[:0]
	for _, f := range n.fields {
		if f.value.kind == kindNull && contains(names, f.name) {
			continue
		}
		kept = append(kept, f)
	}
	n.fields, n.index = kept, nil
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

func (z normaliser) contract(n *node) {
	if n == nil {
		return
	}
	kept := n.fields[:0:0]
	for _, f := range n.fields {
		name, old := oldContractNames[f.name]
		if !old {
			kept = append(kept, f)
			continue
		}
		if n.member(name) != nil {
			z.rep.add(fault{rule: "contract-both-names", path: trail{key("engine_contract"), key(name)}, pos: &f.key,
				says: fmt.Sprintf("given under its old name %s too", f.name), hint: "remove " + f.name})
			continue
		}
		f.name = name
		kept = append(kept, f)
	}
	n.fields, n.index = kept, nil
}

var wholeReference = regexp.MustCompile(`^\$\{([A-Za-z_][A-Za-z0-9_]*)\}$`)

// resolve replaces environment references in the merged document, removes the slashes
// that end an engine's URL, and gives a simulated launch its model.
func (z normaliser) resolve(n *node, env func(string) (string, bool)) {
	if e := n.get("engines"); e != nil {
		for i, item := range e.items {
			p := trail{key("engines"), at(i)}
			z.reference(item.get("attestation_url"), p.add(key("attestation_url")), env)
			if u := item.get("url"); u != nil && u.kind == kindString {
				z.reference(u, p.add(key("url")), env)
				u.text = strings.TrimRight(u.text, "/")
			}
		}
	}
	if l := n.get("deploy").get("launch"); l != nil {
		for _, f := range l.fields {
			k := f.value.get("kind")
			if k != nil && k.text == "simulated" && f.value.get("simulated") == nil {
				f.value.set(field{name: "simulated", key: f.key, value: &node{kind: kindObject, pos: f.value.pos}})
			}
		}
	}
}

func (z normaliser) reference(n *node, p trail, env func(string) (string, bool)) {
	if n == nil || n.kind != kindString || !strings.Contains(n.text, "${") {
		return
	}
	m := wholeReference.FindStringSubmatch(n.text)
	if m == nil {
		z.rep.add(fault{rule: "env-reference", path: p, got: show(p, n), want: "a whole value ${NAME}, or an address without ${",
			hint: "put the whole address into one variable"})
		return
	}
	value, ok := "", false
	if env != nil {
		value, ok = env(m[1])
	}
	switch {
	case !ok || strings.TrimSpace(value) == "":
		z.rep.add(fault{rule: "env-reference", path: p, says: fmt.Sprintf("the environment variable %s is unset or blank", m[1]),
			got: m[0], want: "a variable that holds the address", hint: "export " + m[1] + "=http://HOST:PORT"})
	case strings.Contains(value, "${"):
		z.rep.add(fault{rule: "env-reference", path: p, says: fmt.Sprintf("the environment variable %s holds a reference again", m[1]),
			got: m[0], want: "a variable that holds the address itself"})
	default:
		n.raw, n.text = n.text, value
	}
}
