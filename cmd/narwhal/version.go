package main

import (
	"fmt"
	"io"
	"runtime"

	"github.com/spf13/cobra"
)

func versionVerb(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Prints the version",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			a.result = &result{
				data: map[string]string{"version": version, "go": runtime.Version(), "os": runtime.GOOS, "arch": runtime.GOARCH},
				text: func(w io.Writer) {
					fmt.Fprintf(w, "narwhal %s %s/%s\n", version, runtime.GOOS, runtime.GOARCH)
				},
			}
			return nil
		},
	}
}
