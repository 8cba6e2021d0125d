package main

import (
	"slices"
	"testing"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates/attestation"
	"github.com/narwhal-fleet/narwhal/gates/engines"
)

// TestAttestationLooksAtTheLaunchedContainer: gate E asks for the container that gate C starts.
func TestAttestationLooksAtTheLaunchedContainer(t *testing.T) {
	for runtime, want := range map[string]string{"": "docker", "podman": "podman"} {
		f := fleet.Fleet{
			Engines: []fleet.Engine{{IID: "e0", URL: "http://192.0.2.1:8100"}},
			Deploy: &fleet.Deploy{Name: "tern", Hosts: map[string]fleet.Host{"h": {Root: "/n"}}, Engines: map[string]fleet.Place{"e0": {Host: "h", Launch: "l"}},
				Launch: map[string]fleet.Launch{"l": {Kind: fleet.LaunchContainer, Runtime: runtime, Image: "i", Argv: []string{"--model", "/m"}, ModelDir: "/m"}}},
		}
		r, err := f.Resolve("e0")
		if err != nil {
			t.Fatal(err)
		}
		spec, err := engines.Spec(f, r)
		if err != nil {
			t.Fatal(err)
		}
		w, err := attestation.WatchOf(f, "e0")
		if err != nil {
			t.Fatal(err)
		}
		name := spec.Argv[slices.Index(spec.Argv, "--name")+1]
		if w.Container != want+":"+name || spec.Argv[0] != want || w.Model != "/m" {
			t.Errorf("looks at %q, gate C starts %v", w.Container, spec.Argv)
		}
	}
}
