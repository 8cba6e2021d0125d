package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/narwhal-fleet/narwhal/attest"
	"github.com/narwhal-fleet/narwhal/internal/atomicfile"
	"github.com/narwhal-fleet/narwhal/internal/problem"
)

type createFlags struct {
	key, passphrase, kind, predicate, out string
}

func attestCreateVerb(a *app) *cobra.Command {
	var f createFlags
	c := &cobra.Command{
		Use: "create FILE...", Short: "Signs a statement about files, as a Sigstore bundle", Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return a.attestFiles(cmd.Context(), f, args) },
	}
	c.Flags().StringVar(&f.key, "key", "", "private key: a file, or awskms://, azurekms://, gcpkms:// or hashivault:// (default: operator.key in the state folder's keys)")
	c.Flags().StringVar(&f.passphrase, "passphrase", "", "passphrase by reference: env:NAME or file:PATH")
	c.Flags().StringVar(&f.kind, "type", "", "predicate type, a URI")
	c.Flags().StringVar(&f.predicate, "predicate", "", "file with the predicate, a JSON object (default: an empty one)")
	c.Flags().StringVarP(&f.out, "output", "o", "", "bundle file (default: standard output)")
	_ = c.MarkFlagRequired("type")
	return c
}

func (a *app) attestFiles(ctx context.Context, f createFlags, files []string) error {
	signer, err := a.signerAt(f.key, f.passphrase)
	if err != nil {
		return err
	}
	st := attest.Statement{PredicateType: f.kind, Predicate: json.RawMessage("{}")}
	if f.predicate != "" {
		b, err := a.input(ctx, f.predicate, "read the predicate")
		if err != nil {
			return err
		}
		st.Predicate = bytes.TrimSpace(b)
	}
	for _, name := range files {
		digest, err := a.subjectDigest(ctx, name)
		if err != nil {
			return err
		}
		st.Subject = append(st.Subject, attest.SHA256Subject(filepath.Base(name), digest))
	}
	bundle, err := attest.Sign(signer, st)
	if err != nil {
		return problem.Wrap(problem.Invalid, "statement", "sign the statement", err, "the predicate must be a JSON object and the type a URI")
	}
	if f.out == "" {
		a.result = &result{raw: append(bundle, '\n')}
		return nil
	}
	if err := atomicfile.Write(f.out, bundle, 0o644); err != nil {
		return problem.Wrap(problem.Failed, "bundle_write", "write the bundle", err, "check the folder")
	}
	a.result = &result{data: map[string]any{"bundle": f.out, "signer": signer.Public().Hint(), "subjects": st.Subject}, artifacts: []artifact{{"bundle", f.out, "created"}},
		text: func(w io.Writer) { fmt.Fprintf(w, "%s, signed by %s\n", f.out, signer.Public().Hint()) }}
	return nil
}

// signerAt opens an existing key.
func (a *app) signerAt(path, ref string) (*attest.Signer, error) {
	if attest.IsKMS(path) {
		return openKMS(path)
	}
	path, err := a.keyPath(path)
	if err != nil {
		return nil, err
	}
	if !exists(path) {
		return nil, problem.New(problem.Invalid, "key_missing", "no key at "+path, "narwhal keys generate makes one")
	}
	pass, err := a.passphrase(ref)
	if err != nil {
		return nil, err
	}
	signer, _, err := attest.OpenKeyFile(path, pass)
	if err != nil {
		return nil, problem.Wrap(problem.Invalid, "key_unusable", "open the key", err, "check the file's mode (0600) and the passphrase")
	}
	return signer, nil
}
