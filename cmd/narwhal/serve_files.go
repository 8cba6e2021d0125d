package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/narwhal-fleet/narwhal/internal/atomicfile"
	"github.com/narwhal-fleet/narwhal/internal/filelock"
	"github.com/narwhal-fleet/narwhal/internal/problem"
)

// makeFolder makes the folder of a router's file; option is what names another one.
func makeFolder(what, option, path string) error {
	if path == "" {
		return nil
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return problem.Wrap(problem.Failed, "no_"+what+"_folder", "make the folder of the "+what, err, option+" names a file in a folder that this router may write; now it is "+dir)
	}
	return nil
}

// holdState makes the state file this process's own, so that two routers do not write over
// each other. The result ends the hold.
func holdState(path string) (end func(), err error) {
	if path == "" {
		return func() {}, nil
	}
	if err := makeFolder("state", "--state-path, or recovery.state_path,", path); err != nil {
		return nil, err
	}
	h, err := filelock.Take(path)
	var held *filelock.HeldError
	switch {
	case errors.As(err, &held):
		hint := "each router has a state file and a journal of its own: --state-path FILE, or recovery.state_path, and --journal FILE"
		if held.PID > 0 {
			hint = fmt.Sprintf("kill -TERM %d stops that router; %s", held.PID, hint)
		}
		return nil, problem.Wrap(problem.Locked, "state_held", "hold the state file", held, hint)
	case err != nil:
		return nil, problem.Wrap(problem.Failed, "no_state_file", "hold the state file", err, "--state-path, or recovery.state_path, names a file in a folder that this router may write")
	}
	atomicfile.Sweep(path)
	return h.Release, nil
}
