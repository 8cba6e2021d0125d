package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/narwhal-fleet/narwhal/attest"
	"github.com/narwhal-fleet/narwhal/internal/problem"
	"github.com/narwhal-fleet/narwhal/internal/process"
	"github.com/narwhal-fleet/narwhal/internal/sandbox"
)

// sandboxProcess names the background process of sandbox up.
const sandboxProcess = "sandbox"

type sandboxData struct {
	Dir     string         `json:"dir"`
	Fleet   string         `json:"fleet"`
	Running bool           `json:"running"`
	Hosts   []sandbox.Host `json:"hosts"`
}

func sandboxVerb(a *app) *cobra.Command {
	c := &cobra.Command{Use: "sandbox", Short: "A fleet of loopback hosts with simulated engines"}
	var dir string
	var hosts, engines int
	var secrets []string
	up := &cobra.Command{
		Use: "up", Short: "Starts the hosts in the background and prints the fleet file to use", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.sandboxUp(cmd.Context(), dir, hosts, engines, secrets)
		},
	}
	serve := &cobra.Command{
		Use: "serve", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := startSandbox(dir, hosts, engines, secrets)
			if err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(dir, "ready"), nil, 0o600); err != nil {
				return err
			}
			<-cmd.Context().Done()
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			return s.Down(ctx)
		},
	}
	for _, v := range []*cobra.Command{up, serve} {
		v.Flags().IntVar(&hosts, "hosts", sandbox.DefaultHosts, "number of hosts, at most 64")
		v.Flags().IntVar(&engines, "engines-per-host", 1, "engines of each host, at most 8")
		v.Flags().StringArrayVar(&secrets, "secret", nil, "environment variable that every engine gets by reference; repeat for several")
	}
	status := &cobra.Command{
		Use: "status", Short: "Says whether the hosts run", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return a.sandboxStatus(dir) },
	}
	down := &cobra.Command{
		Use: "down", Short: "Stops the hosts and every process on them; the folder stays", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.sandboxDown(cmd.Context(), dir) },
	}
	for _, v := range []*cobra.Command{up, serve, status, down} {
		v.Flags().StringVar(&dir, "dir", "", "folder of the sandbox (default: sandbox-hosts in the state folder)")
		v.PreRunE = func(*cobra.Command, []string) (err error) {
			dir, err = a.sandboxDir(dir)
			return err
		}
		c.AddCommand(v)
	}
	return c
}

func (a *app) sandboxDir(dir string) (string, error) {
	if dir != "" {
		return filepath.Abs(dir)
	}
	state, err := a.stateDir()
	return filepath.Join(state, "sandbox-hosts"), err
}

// startSandbox makes the operator's key and starts the hosts in this process.
func startSandbox(dir string, hosts, engines int, secrets []string) (*sandbox.Sandbox, error) {
	if err := os.MkdirAll(filepath.Join(dir, "keys"), 0o700); err != nil {
		return nil, problem.Wrap(problem.Failed, "sandbox_folder", "make the sandbox folder", err, "name another one with --dir")
	}
	if _, _, err := attest.OpenKeyFile(filepath.Join(dir, "keys", "operator.key"), nil); err != nil {
		return nil, problem.Wrap(problem.Failed, "sandbox_key", "make the operator's key", err, "remove the folder and start again")
	}
	s, err := sandbox.Up(sandbox.Config{Dir: dir, Hosts: hosts, Engines: engines, Operator: "keys/operator.key", Secrets: secrets})
	if err != nil {
		return nil, problem.Wrap(problem.Failed, "sandbox_start", "start the sandbox", err, "a port may be taken: remove "+filepath.Join(dir, "layout.json")+" to choose others")
	}
	return s, nil
}

func (a *app) sandboxUp(ctx context.Context, dir string, hosts, engines int, secrets []string) error {
	if hosts < 1 || hosts > sandbox.MaxHosts {
		return problem.New(problem.Invalid, "invalid_arguments", fmt.Sprintf("%d hosts", hosts), fmt.Sprintf("a sandbox has 1 to %d hosts", sandbox.MaxHosts))
	}
	if engines < 1 || engines > sandbox.MaxEngines {
		return problem.New(problem.Invalid, "invalid_arguments", fmt.Sprintf("%d engines a host", engines), fmt.Sprintf("a sandbox's host has 1 to %d engines", sandbox.MaxEngines))
	}
	for _, name := range secrets {
		if a.getenv(name) == "" {
			return problem.New(problem.Invalid, "secret_unset", "the environment variable "+name+a.missing(name), "export "+name+" first, here and for gate run")
		}
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if r, ok := process.Read(dir, sandboxProcess); ok && r.Alive() {
		return a.sandboxStatus(dir)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return problem.Wrap(problem.Failed, "sandbox_folder", "make the sandbox folder", err, "name another one with --dir")
	}
	ready := filepath.Join(dir, "ready")
	_ = os.Remove(ready)
	argv := []string{self, "sandbox", "serve", "--dir", dir, "--hosts", fmt.Sprint(hosts), "--engines-per-host", fmt.Sprint(engines)}
	for _, s := range secrets {
		argv = append(argv, "--secret", s)
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	r, _, err := process.Start(ctx, dir, process.Spec{Name: sandboxProcess, Argv: argv, Launch: "sandbox"}, []string{self, "host", "become"})
	if err != nil {
		return problem.Wrap(problem.Failed, "sandbox_start", "start the sandbox", err, "look at "+filepath.Join(dir, "sandbox.log"))
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !exists(ready) {
		if !r.Alive() {
			return problem.New(problem.Failed, "sandbox_start", "start the sandbox: "+process.Tail(r.Log, 400), "look at "+r.Log)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	return a.sandboxStatus(dir)
}

func (a *app) sandboxStatus(dir string) error {
	d := sandboxData{Dir: dir, Fleet: filepath.Join(dir, "fleet.json"), Hosts: []sandbox.Host{}}
	hosts, err := sandbox.Remembered(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return problem.Wrap(problem.Failed, "sandbox_unreadable", "read the sandbox", err, "remove the folder and start again")
	}
	if hosts != nil {
		d.Hosts = hosts
	}
	r, ok := process.Read(dir, sandboxProcess)
	d.Running = ok && r.Alive()
	a.result = &result{data: d, text: func(w io.Writer) {
		if !d.Running {
			fmt.Fprintf(w, "no sandbox runs in %s; narwhal sandbox up starts one\n", dir)
			return
		}
		fmt.Fprintf(w, "%d hosts run in %s\nfleet file %s\nnext: narwhal gate run -f %s --yes\n", len(d.Hosts), dir, d.Fleet, d.Fleet)
	}}
	return nil
}

func (a *app) sandboxDown(ctx context.Context, dir string) error {
	stopped, err := process.Stop(ctx, dir, sandboxProcess, 25*time.Second)
	if err != nil {
		return problem.Wrap(problem.Residue, "sandbox_residue", "stop the sandbox", err, "look at the processes with ps")
	}
	hosts, err := sandbox.Remembered(dir)
	if err == nil {
		err = sandbox.StopProcesses(ctx, hosts)
	} else if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	if err != nil {
		return problem.Wrap(problem.Residue, "sandbox_residue", "stop the sandbox's processes", err, "run the same command again")
	}
	a.result = &result{data: map[string]any{"dir": dir, "stopped": stopped.Was}, text: func(w io.Writer) {
		if stopped.Was {
			fmt.Fprintf(w, "stopped the %d hosts in %s and what ran on them; the folder stays\n", len(hosts), dir)
			return
		}
		fmt.Fprintf(w, "no sandbox ran in %s\n", dir)
	}}
	return nil
}
