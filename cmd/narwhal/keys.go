package main

import (
	"fmt"
	"io"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/narwhal-fleet/narwhal/attest"
	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/internal/problem"
)

type keyData struct {
	Path   string `json:"path"`
	Public string `json:"public"`
	Hint   string `json:"hint"`
}

func keysVerb(a *app) *cobra.Command {
	c := &cobra.Command{Use: "keys", Short: "The signing keys of an operator or CI"}
	var out, ref string
	generate := &cobra.Command{
		Use: "generate", Short: "Makes an ECDSA P-256 key and its public half", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return a.openKey(out, ref, true) },
	}
	show := &cobra.Command{
		Use: "show", Short: "Shows the public half of a key", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return a.openKey(out, ref, false) },
	}
	for _, v := range []*cobra.Command{generate, show} {
		v.Flags().StringVarP(&out, "output", "o", "", "key file (default: operator.key in the state folder's keys)")
		v.Flags().StringVar(&ref, "passphrase", "", "passphrase by reference: env:NAME or file:PATH")
		c.AddCommand(v)
	}
	return c
}

// keyPath is the named key file, or the state folder's own.
func (a *app) keyPath(path string) (string, error) {
	if path != "" {
		return path, nil
	}
	state, err := a.stateDir()
	return filepath.Join(state, "keys", "operator.key"), err
}

// passphrase resolves a reference from the command line; none gives none.
func (a *app) passphrase(ref string) ([]byte, error) {
	if ref == "" {
		return nil, nil
	}
	l := loaded{base: a.dir}
	v, err := l.secret(a)(fleet.SecretRef(ref))
	if err != nil {
		return nil, err
	}
	return []byte(v.Reveal()), nil
}

// showKMS shows the public half of a key that stays where it was made.
func (a *app) showKMS(ref string, generate bool) error {
	if generate {
		return problem.New(problem.Invalid, "kms_generate", "keys of a key management are made there", "make it with the provider's tool; narwhal keys show -o "+ref+" prints its public half")
	}
	signer, err := openKMS(ref)
	if err != nil {
		return err
	}
	d := keyData{Path: ref, Public: string(signer.Public().PEM()), Hint: signer.Public().Hint()}
	a.result = &result{data: d, text: func(w io.Writer) { fmt.Fprintf(w, "%s\n%s", d.Path, d.Public) }}
	return nil
}

func (a *app) openKey(path, ref string, generate bool) error {
	if attest.IsKMS(path) {
		return a.showKMS(path, generate)
	}
	path, err := a.keyPath(path)
	if err != nil {
		return err
	}
	if exists(path) == generate {
		if generate {
			return problem.New(problem.Invalid, "key_exists", "a key lies at "+path+" already", "name another file with -o, or use this one")
		}
		return problem.New(problem.Invalid, "key_missing", "no key at "+path, "narwhal keys generate makes one")
	}
	pass, err := a.passphrase(ref)
	if err != nil {
		return err
	}
	signer, created, err := attest.OpenKeyFile(path, pass)
	if err != nil {
		status := problem.Failed
		if !generate {
			status = problem.Invalid
		}
		return problem.Wrap(status, "key_unusable", "open the key", err, "check the file's mode (0600) and the passphrase")
	}
	d := keyData{Path: path, Public: string(signer.Public().PEM()), Hint: signer.Public().Hint()}
	state := "existing"
	if created {
		state = "created"
	}
	a.result = &result{data: d, artifacts: []artifact{{"key", path, state}, {"public_key", path + ".pub", state}}, text: func(w io.Writer) {
		fmt.Fprintf(w, "%s\n%s", d.Path, d.Public)
	}}
	return nil
}
