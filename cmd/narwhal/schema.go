package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/narwhal-fleet/narwhal/internal/problem"
	"github.com/narwhal-fleet/narwhal/schema"
)

func schemaVerb(a *app) *cobra.Command {
	c := &cobra.Command{Use: "schema", Short: "The schema of fleet files, for editors and other tools"}
	var as string
	export := &cobra.Command{
		Use:   "export",
		Short: "Prints the schema as JSON Schema or CUE",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			switch as {
			case "cue":
				a.result = &result{raw: schema.ExportCUE()}
				return nil
			case "jsonschema":
				b, err := schema.ExportJSONSchema()
				a.result = &result{raw: b}
				return err
			}
			return problem.New(problem.Invalid, "invalid_arguments", fmt.Sprintf("--as %q is not known", as), "choose jsonschema or cue")
		},
	}
	export.Flags().StringVar(&as, "as", "jsonschema", "form: jsonschema or cue")
	c.AddCommand(export, rulesVerb(a))
	return c
}

func rulesVerb(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "rules",
		Short: "Lists the rules by id",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			type row struct {
				ID       string          `json:"id"`
				Severity schema.Severity `json:"severity"`
				Says     string          `json:"says"`
			}
			var rows []row
			for _, r := range schema.Rules {
				rows = append(rows, row{r.ID, r.Severity, r.Says})
			}
			a.result = &result{data: map[string]any{"rules": rows}, text: func(w io.Writer) {
				for _, r := range rows {
					fmt.Fprintf(w, "%-24s %-8s %s\n", r.ID, r.Severity, r.Says)
				}
			}}
			return nil
		},
	}
}
