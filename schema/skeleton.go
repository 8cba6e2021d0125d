package schema

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"slices"

	"github.com/narwhal-fleet/narwhal/internal/problem"
)

// placeholder of what a skeleton cannot know.
const (
	SkeletonModel  = "model-name"
	SkeletonLaunch = "skeleton"
	skeletonPort   = 8100
)

// Skeleton returns a JSON document that completes sources which name hosts and little else,
// so that the hosts can be discovered: one engine a host, and every required field that the
// sources lack. It returns nil when the sources lack nothing that it could give.
func Skeleton(ctx context.Context, srcs []Source) ([]byte, error) {
	var out []byte
	_, err := within(ctx, budgetOf(srcs), srcs[0].Name, func() (*Document, error) {
		var err error
		out, err = skeleton(srcs)
		return nil, err
	})
	return out, err
}

func skeleton(srcs []Source) ([]byte, error) {
	rep := &report{}
	for _, s := range srcs {
		rep.sources = append(rep.sources, &source{name: s.Name, data: s.Data})
	}
	n := read(rep)
	if n == nil {
		return nil, orUnknown(rep)
	}
	hosts := n.get("deploy").get("hosts")
	if hosts == nil || hosts.kind != kindObject || len(hosts.fields) == 0 {
		return nil, problem.New(problem.Invalid, "no_hosts", "the file names no host to discover", `give at least {"deploy": {"hosts": {"alpha-1": {"address": "192.0.2.11", "user": "narwhal", "host_keys": ["SHA256:…"]}}}}`)
	}
	doc, deploy := map[string]any{}, map[string]any{}
	fill := func(into map[string]any, of *node, name string, v any) {
		if of.get(name) == nil {
			into[name] = v
		}
	}
	fill(doc, n, "schema", "narwhal.fleet")
	fill(doc, n, "schema_version", 2)
	fill(doc, n, "model", SkeletonModel)
	fill(doc, n, "slo", map[string]any{"ttft_s": 10.0, "tpot_s": 0.125})
	fill(deploy, n.get("deploy"), "name", "draft")
	if n.get("engines") == nil {
		work := workers(hosts)
		if len(work) == 0 {
			return nil, problem.New(problem.Invalid, "no_hosts", "every host only forwards connections to another", "name the hosts that shall carry engines")
		}
		var engines []any
		places := map[string]any{}
		for i, id := range work {
			address := textOf(hosts.get(id).get("address"))
			if address == "" {
				address = id
			}
			iid := fmt.Sprintf("e%d", i)
			engines = append(engines, map[string]any{"iid": iid, "url": "http://" + net.JoinHostPort(address, fmt.Sprint(skeletonPort+i))})
			places[iid] = map[string]any{"host": id}
		}
		doc["engines"] = engines
		fill(deploy, n.get("deploy"), "engines", places)
		fill(deploy, n.get("deploy"), "router", map[string]any{"host": work[0]})
		fill(deploy, n.get("deploy"), "defaults", map[string]any{"launch": SkeletonLaunch})
		fill(deploy, n.get("deploy"), "launch", map[string]any{SkeletonLaunch: map[string]any{"kind": "process", "argv": []string{"true"}}})
	}
	if len(deploy) > 0 {
		doc["deploy"] = deploy
	}
	if len(doc) == 0 {
		return nil, nil
	}
	return json.Marshal(doc)
}

// workers are the hosts that no other passes through.
func workers(hosts *node) []string {
	jumps := map[string]bool{}
	for _, f := range hosts.fields {
		jumps[textOf(f.value.get("jump"))] = true
	}
	var out []string
	for _, f := range hosts.fields {
		if !jumps[f.name] {
			out = append(out, f.name)
		}
	}
	slices.Sort(out)
	return out
}
