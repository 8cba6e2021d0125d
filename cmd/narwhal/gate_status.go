package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/internal/problem"
	"github.com/narwhal-fleet/narwhal/internal/process"
)

func gateStatusVerb(a *app) *cobra.Command {
	var f gateFlags
	c := &cobra.Command{
		Use: "status", Short: "Shows the seven gates, what they found, their evidence and what went stale", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.live {
				s, err := a.openSession(cmd.Context(), f.fleet, f.run, false, gates.Quiet{})
				if err != nil {
					return err
				}
				defer s.Close()
				if _, err := s.runner.Forecast(cmd.Context(), gates.Options{}); err != nil {
					return err
				}
				d := s.status()
				a.result = &result{data: d, text: d.printAll}
				return nil
			}
			v, err := a.readRun(cmd, f)
			if err != nil {
				return err
			}
			inputs := gates.Inputs(v.fleet, gates.Release{})
			delete(inputs, "release") // this reading does not say which binary runs the gates
			stale := gates.StaleUnder(pipeline(), v.fleet, v.snap.State, inputs, v.snap.Load)
			d := statusOf(v.fleet.Deploy.Name, filepath.Base(v.snap.Dir), v.snap.Dir, v.snap.State, stale, v.fleet.Deploy.Router.Listen, v.snap.Load)
			if !v.held() {
				d.cutOff()
			}
			a.result = &result{data: d, text: d.printAll}
			return nil
		},
	}
	f.add(c)
	c.Flags().BoolVar(&f.live, "live", false, "ask the hosts what runs now")
	return c
}

// printFindings prints each finding, a note as such, and what to do about it.
func printFindings(w io.Writer, findings []record.Finding) {
	for _, f := range findings {
		kind, text := "finding", f.Message
		if f.Note {
			kind = "note"
		}
		if text == "" {
			text = fmt.Sprintf("got %s, want %s", f.Got, f.Want)
		}
		fmt.Fprintf(w, "    %s %s: %s\n", kind, f.Code, oneLine(text))
		if f.Hint != "" {
			fmt.Fprintf(w, "      %s\n", oneLine(f.Hint))
		}
	}
}

// readOnly is a run that is looked at without a lock.
type readOnly struct {
	loaded
	snap  *record.Snapshot
	state string
}

// readRun finds and reads a run beside whoever writes it.
func (a *app) readRun(cmd *cobra.Command, f gateFlags) (readOnly, error) {
	l, err := a.loadFleet(cmd.Context(), f.fleet)
	if err != nil {
		return readOnly{}, err
	}
	if err := l.withDeploy(); err != nil {
		return readOnly{}, err
	}
	v := readOnly{loaded: l}
	if v.state, err = a.stateDir(); err != nil {
		return v, err
	}
	v.snap, err = readSnapshot(v.state, l.fleet.Deploy.Name, f.run)
	return v, err
}

// held reports whether a command works on the fleet now.
func (v readOnly) held() bool {
	dir, err := record.FleetDir(v.state, v.fleet.Deploy.Name)
	if err != nil {
		return false
	}
	b, err := os.ReadFile(filepath.Join(dir, "lock.holder"))
	var note struct {
		Holder record.Holder `json:"holder"`
	}
	if err != nil || json.Unmarshal(b, &note) != nil {
		return false
	}
	h := note.Holder
	return process.Identity{PID: h.PID, BootID: h.BootID, StartTicks: uint64(h.StartTicks)}.Alive()
}

// cutOff says of gates that were left running that nobody works on them.
func (r *runStatus) cutOff() {
	for i, g := range r.Gates {
		if g.State == record.GateRunning {
			r.Gates[i].Because = "cut off: the same gate run goes on with it"
		}
	}
}

func readSnapshot(state, name, prefix string) (*record.Snapshot, error) {
	dir, err := record.Resolve(state, name, prefix)
	if errors.Is(err, record.ErrNoRun) {
		return nil, problem.Wrap(problem.Invalid, "no_such_run", "find the run", err, "narwhal gate run starts one")
	} else if err != nil {
		return nil, problem.Wrap(problem.Invalid, "no_such_run", "find the run", err, "narwhal gate runs lists them")
	}
	snap, err := record.Read(dir)
	return snap, recordProblem(err)
}

func gateRunsVerb(a *app) *cobra.Command {
	var f gateFlags
	c := &cobra.Command{
		Use: "runs", Short: "Lists the runs of a fleet", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := a.loadFleet(cmd.Context(), f.fleet)
			if err != nil {
				return err
			}
			if err := l.withDeploy(); err != nil {
				return err
			}
			state, err := a.stateDir()
			if err != nil {
				return err
			}
			runs, err := listRuns(state, l.fleet)
			if err != nil {
				return err
			}
			a.result = &result{data: map[string]any{"fleet": l.fleet.Deploy.Name, "runs": runs}, text: func(w io.Writer) {
				for _, r := range runs {
					if r.Passed == "unreadable" {
						fmt.Fprintf(w, "%s  unreadable: no valid log in %s\n", r.Run, r.Dir)
						continue
					}
					fmt.Fprintf(w, "%s  passed %s  %d events\n", r.Run, r.Passed, r.Events)
				}
			}}
			return nil
		},
	}
	fleetFlag(c, &f.fleet)
	return c
}

type runLine struct {
	Run    string `json:"run"`
	Dir    string `json:"dir"`
	Passed string `json:"passed"` // letters of passed gates
	Events int64  `json:"events"`
}

func listRuns(state string, f fleet.Fleet) ([]runLine, error) {
	list, err := record.List(state, f.Deploy.Name)
	if err != nil {
		return nil, problem.Wrap(problem.Failed, "state_unreadable", "list the runs", err, "check the state folder")
	}
	out, err := unreadableRuns(state, f.Deploy.Name, list)
	if err != nil {
		return nil, problem.Wrap(problem.Failed, "state_unreadable", "list the runs", err, "check the state folder")
	}
	for _, r := range list {
		snap, err := record.Read(r.Dir)
		if err != nil {
			out = append(out, runLine{Run: r.ID, Dir: r.Dir, Passed: "unreadable"})
			continue
		}
		line := runLine{Run: r.ID, Dir: r.Dir, Events: snap.Seq, Passed: "none"}
		passed := ""
		for _, g := range pipeline() {
			if snap.State.Gates[g.Info().Letter].State == record.VerdictPassed {
				passed += g.Info().Letter
			}
		}
		if passed != "" {
			line.Passed = passed
		}
		out = append(out, line)
	}
	slices.SortStableFunc(out, func(a, b runLine) int { return strings.Compare(a.Run, b.Run) })
	return out, nil
}

// unreadableRuns are the folders of runs without a log.
func unreadableRuns(state, name string, list []record.Listed) ([]runLine, error) {
	out := []runLine{}
	dir, err := record.FleetDir(state, name)
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(filepath.Join(dir, "runs"))
	if errors.Is(err, os.ErrNotExist) {
		return out, nil
	} else if err != nil {
		return nil, err
	}
	for _, e := range entries {
		has := slices.ContainsFunc(list, func(r record.Listed) bool { return r.ID == e.Name() })
		if e.IsDir() && !has && !strings.HasPrefix(e.Name(), ".") {
			out = append(out, runLine{Run: clean(e.Name()), Dir: filepath.Join(dir, "runs", e.Name()), Passed: "unreadable"})
		}
	}
	return out, nil
}

// exists reports whether a path is there.
func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
