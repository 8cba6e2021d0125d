package engines

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/runtime/engine"
)

// ContainerRequest asks for the container of an engine.
type ContainerRequest struct {
	Unit Holder `json:"unit"`
}

// Container is what a runtime says of an engine's container.
type Container struct {
	ID      string   `json:"id"`
	Image   string   `json:"image"` // the image's id
	Digests []string `json:"digests"`
	Owner   string   `json:"owner"`
	Launch  string   `json:"launch"`
	PID     int      `json:"pid"`
	Running bool     `json:"running"`
	Network string   `json:"network"`
	IPC     string   `json:"ipc"`
	// Written are folders of the host that the container may write to.
	Written []string `json:"written"`
	Mounts  []string `json:"mounts"`
}

// inspected is the part of a runtime's answer that is read. Both runtimes write it.
type inspected struct {
	ID    string `json:"Id"`
	Image string `json:"Image"`
	State struct {
		Pid     int  `json:"Pid"`
		Running bool `json:"Running"`
	} `json:"State"`
	Config struct {
		Labels map[string]string `json:"Labels"`
	} `json:"Config"`
	HostConfig struct {
		NetworkMode string `json:"NetworkMode"`
		IpcMode     string `json:"IpcMode"`
	} `json:"HostConfig"`
	Mounts []struct {
		Type        string `json:"Type"`
		Source      string `json:"Source"`
		Destination string `json:"Destination"`
		RW          bool   `json:"RW"`
	} `json:"Mounts"`
}

// maxMounts bounds what is kept of a container's mounts.
const maxMounts = 64

func container(ctx context.Context, q ContainerRequest) (Container, error) {
	h := q.Unit
	out, err := printed(ctx, h.Runtime, "container", "inspect", h.Container)
	if err != nil {
		return Container{}, err
	}
	var all []inspected
	if err := decodeOne(out, &all); err != nil {
		return Container{}, err
	}
	if len(all) != 1 || !isContainerID(all[0].ID) {
		return Container{}, fmt.Errorf("look at %s: %s describes %d containers", h, h.Runtime, len(all))
	}
	i := all[0]
	c := Container{ID: i.ID, Image: imageID(i.Image), Owner: i.Config.Labels[labelOwner], Launch: i.Config.Labels[labelLaunch], PID: i.State.Pid,
		Running: i.State.Running, Network: i.HostConfig.NetworkMode, IPC: i.HostConfig.IpcMode, Digests: []string{}, Written: []string{}, Mounts: []string{}}
	for _, m := range i.Mounts[:min(len(i.Mounts), maxMounts)] {
		c.Mounts = append(c.Mounts, engine.Printable(m.Destination, 512))
		if m.RW && m.Type == "bind" {
			c.Written = append(c.Written, engine.Printable(m.Source, 512))
		}
	}
	if c.Digests, err = digests(ctx, h.Runtime, i.Image); err != nil {
		return Container{}, err
	}
	return c, nil
}

func digests(ctx context.Context, runtime, image string) ([]string, error) {
	out, err := printed(ctx, runtime, "image", "inspect", "--format", "{{json .RepoDigests}}", image)
	if err != nil {
		return nil, err
	}
	var all []string
	if err := decodeOne(out, &all); err != nil {
		return nil, err
	}
	kept := []string{}
	for _, d := range all[:min(len(all), maxMounts)] {
		kept = append(kept, engine.Printable(d, 512))
	}
	return kept, nil
}

// imageID writes an image's id with its algorithm, which podman leaves out.
func imageID(s string) string {
	if isContainerID(s) {
		return "sha256:" + s
	}
	return engine.Printable(s, 128)
}

// contained checks the container against its launch.
func (s seen) contained(f fleet.Fleet) []record.Finding {
	r, err := f.Resolve(s.iid)
	if err != nil {
		return nil
	}
	c := s.container
	var out []record.Finding
	if !c.Running {
		out = append(out, s.finding("container-gone", "container", "a running container", "one that has ended", "narwhal gate run --again C"))
	}
	if c.Owner != owner(f, r) || c.Launch != s.live.Launch {
		out = append(out, s.finding("container-foreign", "container", fmt.Sprintf("the container of launch %.12s", s.live.Launch), fmt.Sprintf("one of %q, launch %.12s", c.Owner, c.Launch), "remove that container by hand, then narwhal gate run --again C"))
	}
	if !pinned(r.Image, c) {
		out = append(out, s.finding("container-image", "container", "image "+r.Image, strings.Join(append([]string{c.Image}, c.Digests...), " "), "the tag or id names another image on this host: load the pinned one"))
	}
	if c.Network != "host" {
		out = append(out, s.finding("container-network", "container", "the host's network", c.Network, "the runtime's defaults override --network: the engine's addresses must be the host's"))
	}
	if len(c.Written) > 0 {
		out = append(out, s.finding("container-writes", "container", "folders of the host read-only", strings.Join(c.Written, ", "), "the runtime mounts folders of its own: see its containers.conf or daemon.json"))
	}
	if r.ModelDir != "" && !slices.Contains(c.Mounts, r.ModelDir) {
		out = append(out, s.finding("container-model", "container", "the model folder at "+r.ModelDir, strings.Join(append([]string{"mounts"}, c.Mounts...), " "), "narwhal gate run --again C"))
	}
	return out
}

// pinned reports whether a container runs the image that is pinned by id or digest.
func pinned(image string, c Container) bool {
	_, want, ok := strings.Cut(image, "sha256:")
	if !ok {
		return false
	}
	want = "sha256:" + want
	if name, _, digest := strings.Cut(image, "@"); digest {
		return slices.ContainsFunc(c.Digests, func(d string) bool { return strings.HasSuffix(d, "@"+want) && name != "" })
	}
	return c.Image == want
}
