// Program kms signs with keys of a cloud's key management, for narwhal and for every
// other program that speaks Sigstore's plugin protocol.
//
// It is a module of its own so that narwhal links no cloud's library. Build it under the
// name of each provider that is wanted, into a folder of PATH:
//
//	go build -C attest/kms -o ~/bin/sigstore-kms-awskms .
//
// narwhal then takes awskms://…, gcpkms://…, azurekms://… and hashivault://… where it takes
// the file of a private key. Credentials are the provider's own: its environment variables
// and files.
package main

import (
	"context"
	"crypto"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sigstore/sigstore/pkg/signature/kms"
	_ "github.com/sigstore/sigstore/pkg/signature/kms/aws"
	_ "github.com/sigstore/sigstore/pkg/signature/kms/azure"
	"github.com/sigstore/sigstore/pkg/signature/kms/cliplugin/common"
	"github.com/sigstore/sigstore/pkg/signature/kms/cliplugin/handler"
	_ "github.com/sigstore/sigstore/pkg/signature/kms/gcp"
	_ "github.com/sigstore/sigstore/pkg/signature/kms/hashivault"
)

func main() {
	if err := run(context.Background()); err != nil {
		_ = handler.WriteErrorResponse(os.Stdout, err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	if len(os.Args) == 2 && os.Args[1] == "providers" {
		for _, p := range kms.SupportedProviders() {
			fmt.Println(p)
		}
		return nil
	}
	if me := filepath.Base(os.Args[0]); !slices.ContainsFunc(kms.SupportedProviders(), func(p string) bool { return p == strings.TrimPrefix(me, "sigstore-kms-")+"://" }) {
		return fmt.Errorf("%s names no provider: build this program as sigstore-kms-awskms, -gcpkms, -azurekms or -hashivault", me)
	}
	args, err := handler.GetPluginArgs(os.Args)
	if err != nil {
		return err
	}
	if args.InitOptions == nil || args.InitOptions.ProtocolVersion != common.ProtocolVersion {
		return fmt.Errorf("the caller speaks another version of the protocol than %s", common.ProtocolVersion)
	}
	hash := args.InitOptions.HashFunc
	if hash == 0 {
		hash = crypto.SHA256
	}
	scheme := strings.TrimPrefix(filepath.Base(os.Args[0]), "sigstore-kms-")
	signer, err := kms.Get(ctx, scheme+"://"+args.InitOptions.KeyResourceID, hash)
	if err != nil {
		return err
	}
	_, err = handler.Dispatch(os.Stdout, os.Stdin, args, signer)
	return err
}
