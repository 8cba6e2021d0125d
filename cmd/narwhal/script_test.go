package main

import (
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"narwhal": main})
}

// TestScript runs testdata/script: one file a verb or habit, each in a folder of its
// own, without the reader's home directory.
func TestScript(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			home := env.WorkDir + "/home"
			env.Setenv("HOME", home)
			env.Setenv("NARWHAL_STATE", env.WorkDir+"/state")
			return os.MkdirAll(home, 0o755)
		},
		// exits CODE COMMAND… runs a command that must end with exactly that code.
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits},
	})
}
