package main

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/narwhal-fleet/narwhal/attest"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/internal/problem"
)

func gateVerifyVerb(a *app) *cobra.Command {
	var f gateFlags
	var trust []string
	var policy string
	c := &cobra.Command{
		Use: "verify [PATH]", Short: "Verifies a run's whole record offline", Args: cobra.MaximumNArgs(1),
		Long: "Verifies the chain, every object, the seals and each verdict, without a network. PATH is a run's folder,\n" +
			"also a copied one. Trust comes from --policy and --trust, else from sign.policy or sign.trust of the\n" +
			"fleet file, else from the key that the record itself names, which proves that nothing changed but not\n" +
			"who signed.",
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, signers, named, err := a.verifyInputs(cmd, f, args, trust, policy)
			if err != nil {
				return err
			}
			v, err := gates.VerifyBy(dir, pipeline(), signers)
			if err != nil {
				return problem.Wrap(problem.Invalid, "record_unreadable", "read the record", err, "give the folder of a run")
			}
			a.result = verified(v, dir, named)
			return nil
		},
	}
	f.add(c)
	c.Flags().StringArrayVar(&trust, "trust", nil, "public key file that seals must be signed with; repeat for several")
	c.Flags().StringVar(&policy, "policy", "", "signing policy: who may sign which gate")
	return c
}

// verifyInputs finds the folder and the trusted signers; named is false when only the
// record's own word stands for the key.
func (a *app) verifyInputs(cmd *cobra.Command, f gateFlags, args, trust []string, policy string) (dir string, signers attest.Signers, named bool, err error) {
	none := attest.Signers{}
	if len(args) == 1 {
		dir = args[0]
	}
	if len(f.fleet) > 0 {
		l, err := a.loadFleet(cmd.Context(), f.fleet)
		if err != nil {
			return "", none, false, err
		}
		if err := l.withDeploy(); err != nil {
			return "", none, false, err
		}
		if policy == "" {
			if signers, err = l.signers(a); err != nil {
				return "", none, false, err
			}
		}
		if dir == "" {
			state, err := a.stateDir()
			if err != nil {
				return "", none, false, err
			}
			if dir, err = record.Resolve(state, l.fleet.Deploy.Name, f.run); err != nil {
				return "", none, false, problem.Wrap(problem.Invalid, "no_such_run", "find the run", err, "narwhal gate runs lists them")
			}
		}
	}
	if dir == "" {
		return "", none, false, problem.New(problem.Invalid, "no_run", "no run named", "give a run's folder, or the fleet with -f")
	}
	if policy != "" {
		if signers, err = signingPolicy(policy); err != nil {
			return "", none, false, err
		}
	}
	for _, path := range trust {
		k, err := publicKey(path)
		if err != nil {
			return "", none, false, problem.Wrap(problem.Invalid, "trust_unreadable", "read a trusted key", err, "give a public key in PEM")
		}
		signers.List = append(signers.List, attest.SignersOf([]*attest.Public{k}).List...)
	}
	named = len(signers.List) > 0
	if !named {
		if snap, err := record.Read(dir); err == nil {
			if k, err := attest.LoadPublic([]byte(snap.State.Operator)); err == nil {
				signers = attest.SignersOf([]*attest.Public{k})
			}
		}
	}
	return dir, signers, named, nil
}

func verified(v gates.Verification, dir string, named bool) *result {
	r := &result{status: problem.Success, data: v, artifacts: []artifact{{"record", dir, "existing"}}}
	if len(v.Problems) > 0 {
		r.status = problem.Unverified
	}
	for _, p := range v.Problems {
		hint := "the record was changed or is incomplete: compare it with another copy"
		if strings.Contains(p.Message, attest.ErrUnknownKey.Error()) {
			hint = "name the key that signed with --trust, or sign.trust in the fleet file; a sandbox keeps its own in keys/operator.key.pub"
		}
		r.problems = append(r.problems, &problem.Problem{Status: problem.Unverified, Code: p.Code, Message: p.Message, File: relative(dir, p.File), Line: p.Line, Gate: p.Gate, Hint: hint})
	}
	r.text = func(w io.Writer) {
		fmt.Fprintf(w, "run %s: %d events, %d objects, %d seals\n", v.Run, v.Events, v.Objects, v.Seals)
		if v.Signer != "" && named {
			fmt.Fprintf(w, "signed by %s\n", v.Signer)
		} else if v.Signer != "" {
			fmt.Fprintf(w, "signed by %s, which only the record itself names; --trust KEY.pub proves who it is\n", v.Signer)
		}
		for _, n := range v.Notices {
			fmt.Fprintf(w, "note: %s %s %s\n", n.Code, n.File, n.Message)
		}
		if len(v.Problems) == 0 {
			fmt.Fprintln(w, "the record holds")
		}
	}
	return r
}

func relative(dir, file string) string {
	if file == "" {
		return ""
	}
	return filepath.Join(dir, file)
}
