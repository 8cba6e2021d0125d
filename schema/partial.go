package schema

import "github.com/narwhal-fleet/narwhal/fleet"

// partial runs the rules on secrets and on references between names on a document whose
// shape is wrong somewhere, so that one wrong field does not hide them. It sees the parts
// that have the right shape, and stays silent where the names to choose from are unknown.
func partial(rep *report, n *node) {
	deploy := n.get("deploy")
	if deploy == nil || deploy.kind != kindObject {
		return
	}
	d := &fleet.Deploy{}
	c := checker{rep: rep, root: n, f: &fleet.Fleet{Deploy: d}}
	d.Hosts = hostsOf(deploy.get("hosts"))
	d.Launch = launchesOf(deploy.get("launch"))
	for _, id := range known(d.Hosts) {
		c.hostSecrets(id, d.Hosts[id])
	}
	for _, name := range known(d.Launch) {
		c.launchSecrets(name, d.Launch[name])
	}
	c.secret(deployPath("sign", "passphrase"), fleet.SecretRef(textOf(deploy.get("sign").get("passphrase"))))
	r := deploy.get("router")
	c.secret(deployPath("router", "http", "control_token"), fleet.SecretRef(textOf(r.get("http").get("control_token"))))
	c.secret(deployPath("router", "lease", "etcd", "password"), fleet.SecretRef(textOf(r.get("lease").get("etcd").get("password"))))
	c.namedParts(deploy, d, enginesOf(n.get("engines")))
}

// namedParts checks the names that places, defaults, router and jumps use.
func (c checker) namedParts(deploy *node, d *fleet.Deploy, engines map[string]bool) {
	host := func(p trail) {
		if v, ok := c.root.find(p); ok && v.kind == kindString && d.Hosts != nil && !c.rep.isBlamed(p) {
			if _, ok := d.Hosts[v.text]; !ok {
				unknownName(c, "host-unknown", p, "host", v.text, d.Hosts)
			}
		}
	}
	launch := func(p trail) {
		if v, ok := c.root.find(p); ok && v.kind == kindString && v.text != "" && d.Launch != nil && !c.rep.isBlamed(p) {
			if _, ok := d.Launch[v.text]; !ok {
				unknownName(c, "launch-unknown", p, "launch", v.text, d.Launch)
			}
		}
	}
	if places := deploy.get("engines"); places != nil && places.kind == kindObject {
		for _, f := range places.fields {
			p := deployPath("engines", f.name)
			if engines != nil && !engines[f.name] && !c.rep.isBlamed(p) {
				unknownName(c, "place-engine", p, "engine", f.name, engines)
			}
			host(p.add(key("host")))
			launch(p.add(key("launch")))
		}
	}
	launch(deployPath("defaults", "launch"))
	host(deployPath("router", "host"))
	host(deployPath("router", "standby", "host"))
	if d.Hosts != nil {
		c.jumps(d)
	}
}

func textOf(n *node) string {
	if n == nil || n.kind != kindString {
		return ""
	}
	return n.text
}

// hostsOf returns nil when the names of the hosts are unknown.
func hostsOf(n *node) map[string]fleet.Host {
	if n == nil || n.kind != kindObject {
		return nil
	}
	out := map[string]fleet.Host{}
	for _, f := range n.fields {
		out[f.name] = fleet.Host{
			Jump:       textOf(f.value.get("jump")),
			Passphrase: fleet.SecretRef(textOf(f.value.get("passphrase"))), Password: fleet.SecretRef(textOf(f.value.get("password"))),
		}
	}
	return out
}

// launchesOf returns nil when the names of the launches are unknown.
func launchesOf(n *node) map[string]fleet.Launch {
	if n == nil || n.kind != kindObject {
		return nil
	}
	out := map[string]fleet.Launch{}
	for _, f := range n.fields {
		l := fleet.Launch{Env: map[string]string{}, Secrets: map[string]fleet.SecretRef{}}
		if argv := f.value.get("argv"); argv != nil {
			for _, a := range argv.items {
				l.Argv = append(l.Argv, textOf(a))
			}
		}
		if env := f.value.get("env"); env != nil {
			for _, v := range env.fields {
				l.Env[v.name] = textOf(v.value)
			}
		}
		if secrets := f.value.get("secrets"); secrets != nil {
			for _, v := range secrets.fields {
				l.Secrets[v.name] = fleet.SecretRef(textOf(v.value))
			}
		}
		out[f.name] = l
	}
	return out
}

// enginesOf returns nil when an engine's id is unknown.
func enginesOf(n *node) map[string]bool {
	if n == nil || n.kind != kindArray {
		return nil
	}
	out := map[string]bool{}
	for _, e := range n.items {
		id := e.get("iid")
		if id == nil || id.kind != kindString {
			return nil
		}
		out[id.text] = true
	}
	return out
}
