package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/narwhal-fleet/narwhal/internal/problem"
	"github.com/narwhal-fleet/narwhal/runtime/lifecycle"
)

func enginesActivateVerb(a *app) *cobra.Command {
	var f engineFlags
	var digest string
	c := &cobra.Command{
		Use: "activate {IID... | --all}", Short: "Lets a router that serves take up new profiles of engines",
		Long: "Lets the router read its own profile store again (serve --profiles, profiles.path) and take up the rows of the named\n" +
			"engines, all or none, while requests go on. An engine that serves takes no profile of another process: drain it first.\n" +
			"After that narwhal engines readmit takes back one that was drained; one that was ejected returns by itself. A standby has\n" +
			"profiles of its own: give it the same order, with --url.",
		Example: "  narwhal profile -f fleet.json --only d1 --overwrite\n  narwhal engines activate d1\n  narwhal engines readmit d1 --wait",
		RunE:    func(cmd *cobra.Command, args []string) error { return a.activate(cmd, &f, args, digest) },
	}
	f.router(c)
	f.orders(c)
	c.Flags().StringVar(&digest, "sha256", "", "SHA-256 that the store's bytes must have, 64 hexadecimal digits (default: any)")
	c.Flags().BoolVar(&f.all, "all", false, "every engine, in place of IID")
	c.Flags().BoolVar(&f.all, "wave", false, "the same as --all")
	_ = c.Flags().MarkHidden("wave")
	c.Flags().DurationVar(&f.timeout, "timeout", time.Minute, "limit of the router's answer")
	return c
}

// activationTargets reads IID... or --all, and a digest.
func (f *engineFlags) activationTargets(cmd *cobra.Command, args []string, digest string) ([]string, error) {
	bad := func(message, hint string) error {
		return problem.New(problem.Invalid, "invalid_arguments", message, hint)
	}
	sum, err := hex.DecodeString(digest)
	switch {
	case f.all && len(args) > 0:
		return nil, bad("an engine and --all are both given", cmd.CommandPath()+" takes engines or --all")
	case !f.all && len(args) == 0:
		return nil, bad(cmd.CommandPath()+" needs an engine's id", "narwhal engines list shows them; --all is every engine")
	case slices.Contains(args, ""):
		return nil, bad("the engine's id is empty", "narwhal engines list shows them")
	case cmd.Flags().Changed("sha256") && (err != nil || len(sum) != 32 || digest != strings.ToLower(digest)):
		return nil, bad(fmt.Sprintf("--sha256 %.80q is no SHA-256", digest), "sha256sum STORE prints it: 64 hexadecimal digits in small letters")
	}
	return args, nil
}

// activate gives the order, after a look at which engines there are.
func (a *app) activate(cmd *cobra.Command, f *engineFlags, args []string, digest string) error {
	ids, err := f.activationTargets(cmd, args, digest)
	if err != nil {
		return err
	}
	r, err := f.reach(cmd, a, true)
	if err != nil {
		return err
	}
	defer r.Close()
	d, err := bounding(cmd.Context(), f.timeout, func(ctx context.Context) (lifecycle.Document, error) {
		d, err := r.Look(ctx)
		if err != nil {
			return d, err
		}
		for _, id := range ids {
			if _, ok := d.Engines[id]; !ok {
				return d, &lifecycle.Unknown{IID: id, Known: d.IDs()}
			}
		}
		return r.Activate(ctx, ids, digest)
	})
	t := lifecycle.Target{All: true}
	if len(ids) == 1 {
		t = lifecycle.Target{IID: ids[0]}
	}
	if err != nil {
		return r.notActivated(cmd.Context(), t, ids, d, err)
	}
	o := activation{orderOf(cmd.Name(), r.url, lifecycle.Target{All: true}, d)}
	o.All = f.all
	o.Engines = slices.DeleteFunc(o.Engines, func(e orderedLine) bool { return len(ids) > 0 && !slices.Contains(ids, e.IID) })
	a.result = &result{data: o, text: o.print}
	return nil
}

// notActivated is what a router has against new profiles, with the way on.
func (r *reached) notActivated(ctx context.Context, t lifecycle.Target, ids []string, d lifecycle.Document, err error) error {
	var no *lifecycle.Refusal
	if ctx.Err() != nil || !errors.As(err, &no) {
		return r.problem(ctx, "activate", t, d, err)
	}
	doing := "activate the profiles of " + strings.Join(ids[:min(len(ids), shownIDs)], ", ")
	if len(ids) == 0 {
		doing = "activate the profiles of the fleet"
	}
	if no.Status == http.StatusServiceUnavailable {
		return problem.Wrap(problem.Failed, "profiles_unreadable", doing, err, "the router reads the store that it was started with, serve --profiles or profiles.path: narwhal profile -f FLEET --overwrite writes it")
	}
	if strings.Contains(no.Reason, "has digest") {
		return problem.Wrap(problem.Refused, "order_refused", doing, err, "the router's store is another file than --sha256 is of: sha256sum of the file at profiles.path says what it holds")
	}
	return problem.Wrap(problem.Refused, "order_refused", doing, err, "narwhal profile -f FLEET --only IID --overwrite writes a row of the live process into the router's store; narwhal engines drain IID takes out an engine that serves")
}

// activation is the data of engines activate: how the engines stand whose profiles were taken up.
type activation struct{ orderResult }

func (o activation) print(w io.Writer) {
	for _, e := range o.Engines {
		next := "the router takes it back by itself once it passes"
		switch {
		case e.Draining:
			next = "narwhal engines readmit " + e.IID + " takes it back, where that is the process which answers"
		case e.Accepts:
			next = "serves"
		}
		fmt.Fprintf(w, "%s  has the profile of the store; %s\n", cell(e.IID), cell(next))
	}
}
