package main

import (
	"flag"
	"os"
	"runtime"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(patient{m}, map[string]func(){"narwhal": main})
}

// patient runs more tests at once than there are processors, unless -parallel says how many:
// the parallel ones have fleets of their own and mostly wait for them.
type patient struct{ *testing.M }

const atOnce = 4

func (p patient) Run() int {
	flag.Parse()
	said := false
	flag.Visit(func(f *flag.Flag) { said = said || f.Name == "test.parallel" })
	if !said {
		_ = flag.Set("test.parallel", strconv.Itoa(max(atOnce, runtime.GOMAXPROCS(0)))) // the flag exists
	}
	return p.M.Run()
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
