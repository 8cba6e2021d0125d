package discover

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/narwhal-fleet/narwhal/fleet/remote"
	"github.com/narwhal-fleet/narwhal/gates/discover/answer"
)

// imagesScript asks each container runtime for the images that the host's engines run.
func imagesScript(images []string) string {
	var b strings.Builder
	b.WriteString(prelude)
	for i, image := range images {
		runtime, name, _ := strings.Cut(image, " ")
		fmt.Fprintf(&b, "echo '== image-%d'; if have %s; then %s image inspect --format '{{.Id}} {{json .RepoDigests}}' %s 2>&1; echo \"-- status $?\"; else echo '-- status 127'; fi\n",
			i, runtime, runtime, remote.Quote(name))
	}
	b.WriteString("echo '== end'\n")
	return b.String()
}

// Image is what a runtime says of an image.
type Image struct {
	Runtime string
	Name    string
	ID      string // sha256:…; "" = the host does not have it
	Digests []string
	// Why says what the runtime said instead.
	Why string
}

var (
	imageRE  = regexp.MustCompile(`^(?:sha256:)?([0-9a-f]{64}) (?:\[(.*)\]|null)$`)
	digestIn = regexp.MustCompile(`sha256:[0-9a-f]{64}`)
)

// ParseImages reads the answer of imagesScript for the same images.
func ParseImages(b []byte, images []string) ([]Image, error) {
	s, err := answer.Read(b)
	if err != nil {
		return nil, err
	}
	var out []Image
	for i, image := range images {
		x := Image{}
		x.Runtime, x.Name, _ = strings.Cut(image, " ")
		lines, status := answer.Exit(s[fmt.Sprintf("image-%d", i)])
		for _, l := range lines {
			if m := imageRE.FindStringSubmatch(l); m != nil && status == 0 {
				x.ID, x.Digests = "sha256:"+m[1], digestIn.FindAllString(m[2], 64)
			} else if x.Why == "" && l != "" {
				x.Why = strings.ToValidUTF8(l[:min(len(l), 200)], "")
			}
		}
		if status == absent {
			x.Why = x.Runtime + " is absent"
		}
		out = append(out, x)
	}
	return out, nil
}

// Is reports whether the image is the one that a launch pins: by its id, or by a digest of
// its registry.
func (x Image) Is(pin string) bool {
	_, digest, by := strings.Cut(pin, "@")
	if !by {
		return x.ID == pin
	}
	return slices.Contains(x.Digests, digest)
}
