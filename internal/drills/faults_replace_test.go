package drills

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// replaceE1 replaces an engine and measures it, so that every stage has work. It is the last of
// its role.
var replaceE1 = []string{"gate", "replace", "e1", "--below-floor", "--profile", "--yes"}

var (
	replaceOn   = []string{"gate", "replace", "--below-floor", "--yes"}
	replaceBack = []string{"gate", "replace", "--back", "--below-floor", "--yes"}
)

// command runs the program on the fleet file of the drill as it is now.
func (s *scene) command(exit int, env []string, args ...string) {
	s.t.Helper()
	s.w.write(text(s.t, s.doc))
	if r := s.w.run(s.state, env, append(slices.Clone(args), "-f", s.w.fleet, "--format", "json")...); r.exit != exit {
		s.t.Fatalf("%v: exit %d, want %d\n%s\n%s", args, r.exit, exit, tail(r.out), tail(r.err))
	}
}

// asks runs a command that has to succeed.
func asks(args []string) func(*scene) { return func(s *scene) { s.command(0, nil, args...) } }

// mends runs a command once the drill is over.
func mends(args []string) func(*scene) {
	return func(s *scene) { s.heal(func() { s.command(0, nil, args...) }) }
}

// logged is what drills read of a line of the record.
type logged struct {
	Kind string
	Body struct{ Stage, Status string }
}

func (s *scene) log() (out []logged) {
	b, err := os.ReadFile(filepath.Join(s.run(), "log.jsonl"))
	must(s.t, err)
	for line := range bytes.Lines(b) {
		var l logged
		must(s.t, json.Unmarshal(line, &l))
		out = append(out, l)
	}
	return out
}

// stagesOf counts, by the stage of a replacement that begins there, the events that a command
// has appended, as NARWHAL_CRASH_AFTER does.
func stagesOf(events []logged) map[string]int {
	out, n := map[string]int{}, 0
	for _, l := range events {
		if !slices.Contains([]string{"run.resumed", "facts", "repair", "note"}, l.Kind) {
			n++
		}
		if l.Kind == "replacement.step" && l.Body.Status == "running" {
			out[l.Body.Stage] = n
		}
	}
	return out
}

// killedAt kills a replacement when a stage has begun.
func killedAt(stage string) func(*scene) {
	return func(s *scene) {
		if s.w.replaced == nil {
			before := len(s.log())
			s.command(0, nil, replaceE1...)
			s.w.replaced = stagesOf(s.log()[before:])
		}
		n, ok := s.w.replaced[stage]
		if !ok {
			s.t.Fatalf("a replacement has no stage %q: %v", stage, s.w.replaced)
		}
		s.command(-1, []string{fmt.Sprintf("NARWHAL_CRASH_AFTER=%d", n)}, replaceE1...)
		if log := s.log(); log[len(log)-1].Body.Stage != stage {
			s.t.Fatalf("it was killed at %+v, want stage %s", log[len(log)-1], stage)
		}
	}
}

// killedInStage is a replacement that was killed: no gate runs beside it, and it goes on.
func killedInStage(id, stage string) fault {
	return fault{id: "replace-killed-" + id, stage: "G", where: "workstation", how: "a replacement is killed in stage " + stage + ", and the gates are run",
		do: both(killedAt(stage), mends(replaceOn)), args: []string{"gate", "run", "--yes"}, gate: "Replacement", code: "replacement_unfinished", exit: 6, hint: "gate replace"}
}

// otherLaunch gives e1 another launch in the fleet file.
func otherLaunch(change func(launch object)) func(*scene) {
	return func(s *scene) {
		var other object
		b, err := json.Marshal(s.deploy("launch", "simulated"))
		must(s.t, err)
		must(s.t, json.Unmarshal(b, &other))
		change(other)
		s.deploy("launch")["other"], s.deploy("engines", "e1")["launch"] = other, "other"
	}
}

func slower(launch object) { sub(launch, "simulated")["decode_d_s"] = 0.02 }

var replaceFaults = []fault{
	killedInStage("out", "out"), killedInStage("stop", "stop"), killedInStage("launch", "gate C"), killedInStage("attest", "gate E"),
	killedInStage("preflight", "gate F"), killedInStage("activate", "activate"), killedInStage("back", "back"),
	{id: "replace-last", stage: "G", where: "fleet file", how: "the engine to replace is the last of its role", do: nothing, args: []string{"gate", "replace", "e1", "--yes"}, gate: "Replacement", code: "last_engine", exit: 6, hint: "--below-floor", still: true},
	{id: "replace-partial", stage: "G", where: "command line", how: "a wave leaves an engine out", do: nothing, args: []string{"gate", "replace", "e1", "--wave", "--yes"}, gate: "Replacement", code: "wave_partial", exit: 2, hint: "--only", still: true},
	{id: "replace-beside", stage: "G", where: "fleet file", how: "a limit changed too", do: set(1.5, "slo", "ttft_s"), args: replaceE1, gate: "Replacement", code: "other_changes", exit: 6, hint: "gate run", still: true},
	{id: "replace-owner", stage: "G", where: "file on host", how: "the record of the engine's process is damaged", do: func(s *scene) {
		s.file(filepath.Join(s.hosts[1].Root, "run", "engine-e1.json"), `{"name":"engi`, 0o600)
	}, args: replaceE1, gate: "Replacement", code: "owner_unknown", exit: 6, hint: "ss -ltnp", still: true},
	{id: "replace-late", stage: "G", where: "process", how: "the new engine does not come up", do: both(otherLaunch(func(l object) {
		sub(l, "simulated")["start_s"], l["ready_within"] = 60, "2s"
	}), mends(replaceBack)), args: replaceE1, gate: "C", code: "engine-not-ready", exit: 1, hint: "log"},
	{id: "replace-port", stage: "G", where: "port", how: "somebody takes the engine's port while it is replaced", do: both(killedAt("gate C"), mends(replaceOn), taken(portEngine, 1)), args: replaceOn, gate: "Replacement", code: "owner_unknown", exit: 6, hint: "ss -ltnp"},
	{id: "replace-store", stage: "G", where: "file on host", how: "the router's profiles cannot be put in their place", do: both(mends(replaceOn), func(s *scene) {
		s.keep(s.inRouter("profiles.json"))
		must(s.t, os.Remove(s.inRouter("profiles.json")))
		must(s.t, os.MkdirAll(filepath.Join(s.inRouter("profiles.json"), "x"), 0o755))
	}), args: replaceE1, gate: "G", code: "step-failed", exit: 4, says: "G/profiles"},
	{id: "replace-router-gone", stage: "G", where: "process", how: "the router is gone before an engine is replaced", do: kill(0, "router"), args: replaceE1, gate: "Replacement", code: "fleet_not_serving", exit: 6, hint: "gate run"},
	{id: "replace-router-silent", stage: "G", where: "process", how: "the router hangs before an engine is replaced", do: freeze(0, "router"), args: replaceE1, gate: "Replacement", code: "fleet_not_serving", exit: 6, hint: "gate run"},
	{id: "replace-router-lost", stage: "G", where: "process", how: "the router is gone while an engine is replaced", do: both(killedAt("gate F"), kill(0, "router"), mends([]string{"gate", "run", "--yes"})), args: replaceOn, gate: "Replacement", code: "fleet_not_serving", exit: 6, hint: "gate run"},
	{id: "back-nothing", stage: "G", where: "command line", how: "no replacement is there to take back", do: nothing, args: replaceBack, gate: "Replacement", code: "nothing_to_take_back", exit: 6, hint: "gate log", still: true},
	{id: "back-profile", stage: "G", where: "record", how: "the profile of before has another digest", do: func(s *scene) {
		profile := s.named("evidence:F/profile/e1")
		s.command(0, nil, replaceE1...)
		inRun(profile, func(b []byte) []byte { return append([]byte(" "), b...) })(s)
	}, args: replaceBack, gate: "Replacement", code: "before_damaged", exit: 8, hint: "--profile"},
	{id: "back-settings", stage: "G", where: "fleet file", how: "the profile of before was measured in another way", do: both(asks(replaceE1), set(9, "deploy", "profile", "output_tokens")), args: replaceBack, gate: "Replacement", code: "before_differs", exit: 6, hint: "--profile"},
	{id: "back-late", stage: "G", where: "workstation", how: "a way back is killed, and another engine is to be replaced", do: both(asks(replaceE1), func(s *scene) {
		s.command(-1, []string{"NARWHAL_CRASH_AFTER=4"}, replaceBack...)
	}, mends(replaceOn)), args: []string{"gate", "replace", "e0", "--below-floor", "--yes"}, gate: "Replacement", code: "replacement_unfinished", exit: 6, hint: "gate replace"},
	{id: "back-left", stage: "G", where: "fleet file", how: "the launch that was taken back is still in the file, and the gates are run", do: both(otherLaunch(slower), asks(replaceE1), asks(replaceBack)),
		args: []string{"gate", "run", "--yes"}, gate: "Replacement", code: "launch_left", exit: 6, hint: "gate replace e1"},
}
