package main

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/narwhal-fleet/narwhal/attest"
	"github.com/narwhal-fleet/narwhal/internal/problem"
)

func attestVerb(a *app) *cobra.Command {
	c := &cobra.Command{Use: "attest", Short: "Statements about a record, a binary or an engine"}
	c.AddCommand(attestCreateVerb(a), attestServeVerb(a), attestVerifyVerb(a))
	return c
}

func attestServeVerb(a *app) *cobra.Command {
	var listen, engine, document, key string
	var pid int
	c := &cobra.Command{
		Use: "serve", Short: "The engine sidecar: attests a live engine and signs over a nonce", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			raw, err := a.input(cmd.Context(), document, "read the attestation")
			if err != nil {
				return err
			}
			doc, err := attest.ParseDocument(raw)
			if err != nil {
				return problem.Wrap(problem.Invalid, "document_invalid", "read the attestation "+document, err, "gate E writes one; docs/gates/E.md, A sidecar by hand, says what it must hold")
			}
			signer, _, err := attest.OpenKeyFile(key, nil)
			if err != nil {
				return problem.Wrap(problem.Invalid, "key_unusable", "open the sidecar's key", err, "gate B makes one")
			}
			looker, err := attest.LookerOf(doc)
			if err != nil {
				return problem.Wrap(problem.Invalid, "document_invalid", "read the attestation "+document, err, "gate E writes one; docs/gates/E.md, A sidecar by hand, says what it must hold")
			}
			return attest.Serve(cmd.Context(), attest.SidecarConfig{
				Listen: listen, Document: doc, Identity: attest.HTTPIdentity{Base: engine, PID: pid}, Signer: signer, Looker: looker,
			})
		},
	}
	c.Flags().StringVar(&listen, "listen", attest.DefaultListen, "address to listen on")
	c.Flags().StringVar(&engine, "engine", "", "base URL of the engine")
	c.Flags().StringVar(&document, "document", "", "narwhal.attestation file")
	c.Flags().StringVar(&key, "key", "", "private key of the sidecar")
	c.Flags().IntVar(&pid, "pid", 0, "process id of the engine, 0 for none")
	for _, n := range []string{"engine", "document", "key"} {
		_ = c.MarkFlagRequired(n)
	}
	return c
}

func attestVerifyVerb(a *app) *cobra.Command {
	var keys, types []string
	var root string
	var who attest.CertIdentity
	c := &cobra.Command{
		Use: "verify BUNDLE [FILE...]", Short: "Verifies a Sigstore bundle offline against named keys or an identity, and that it speaks of the files", Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			raw, err := a.input(cmd.Context(), args[0], "read the bundle")
			if err != nil {
				return err
			}
			p := attest.Policy{PredicateTypes: types, AnySubject: len(args) == 1}
			for _, name := range args[1:] {
				digest, err := a.subjectDigest(cmd.Context(), name)
				if err != nil {
					return err
				}
				p.Subjects = append(p.Subjects, attest.SHA256Subject("", digest))
			}
			for _, path := range keys {
				k, err := publicKey(path)
				if err != nil {
					return problem.Wrap(problem.Invalid, "trust_unreadable", "read a trusted key", err, "give a public key in PEM")
				}
				p.Keys = append(p.Keys, k)
			}
			if root != "" {
				raw, err := a.input(cmd.Context(), root, "read the trusted root")
				if err != nil {
					return err
				}
				if p.Root, err = attest.ParseTrustedRoot(raw); err != nil {
					return problem.Wrap(problem.Invalid, "trust_unreadable", "read the trusted root", err, "give a Sigstore trusted root in JSON")
				}
			}
			if root != "" || who != (attest.CertIdentity{}) {
				p.Identities = []attest.CertIdentity{who}
			}
			v, err := attest.NewVerifier(p)
			if err != nil {
				return problem.Wrap(problem.Invalid, "policy_incomplete", "verify the bundle", err, policyHint(raw))
			}
			got, err := v.Verify(raw)
			if err != nil {
				return problem.Wrap(problem.Unverified, attest.Code(err), "verify the bundle", err, "the bundle, its key or its type is not the expected one")
			}
			a.result = &result{data: map[string]any{"statement": got.Statement, "signer": got.Signer()}, text: func(w io.Writer) {
				fmt.Fprintf(w, "%s, signed by %s\n", got.Statement.PredicateType, got.Signer())
				for _, s := range got.Statement.Subject {
					fmt.Fprintf(w, "  %s sha256:%s\n", s.Name, s.Digest["sha256"])
				}
			}}
			return nil
		},
	}
	c.Flags().StringArrayVar(&keys, "key", nil, "trusted public key file; repeat for several (required without an identity)")
	c.Flags().StringVar(&root, "trusted-root", "", "Sigstore trusted root, for bundles that are signed with a certificate")
	c.Flags().StringVar(&who.Issuer, "issuer", "", "issuer that must stand by the identity, with --trusted-root")
	c.Flags().StringVar(&who.Subject, "subject", "", "identity that must have signed, with --trusted-root: an address or a URI")
	c.Flags().StringArrayVar(&types, "type", nil, "accepted predicate type; repeat for several (required)")
	return c
}

// policyHint names what a policy needs, with the type that the bundle claims: not verified yet.
func policyHint(bundle []byte) string {
	hint := "give --key and --type"
	var b struct {
		Envelope struct {
			Payload []byte `json:"payload"`
		} `json:"dsseEnvelope"`
	}
	var st struct {
		Type string `json:"predicateType"`
	}
	if json.Unmarshal(bundle, &b) == nil && json.Unmarshal(b.Envelope.Payload, &st) == nil && st.Type != "" && len(st.Type) <= 200 {
		hint += "; the bundle says that its type is " + clean(st.Type)
	}
	return hint
}
