package docgen

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// Commands makes an index and one page for each visible command below root. Commands
// below those are sections of their page. Hidden commands have no page.
func Commands(root *cobra.Command) []Page {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	var index strings.Builder
	fmt.Fprintf(&index, "# The command line\n\n%s.\n\n| Verb | What it does |\n| --- | --- |\n", root.Short)
	var pages []Page
	for _, c := range visible(root) {
		pages = append(pages, Page{"cli/" + c.Name() + ".md", commandPage(c)})
		fmt.Fprintf(&index, "| [`%s`](%s.md) | %s |\n", c.CommandPath(), c.Name(), cell(c.Short))
	}
	index.WriteString("\nEvery verb also takes these flags:\n\n" + fence(root.PersistentFlags().FlagUsages()))
	index.WriteString("\nThe result goes to standard output, progress and problems to standard error. With\n`--format json` the result is one object, on success and on failure alike.\nSee also [environment variables](environment.md) and [exit codes](../exit-codes.md).\n")
	return append([]Page{{"cli/README.md", index.String()}}, pages...)
}

func visible(c *cobra.Command) []*cobra.Command {
	out := slices.DeleteFunc(slices.Clone(c.Commands()), func(s *cobra.Command) bool { return s.Hidden })
	slices.SortFunc(out, func(a, b *cobra.Command) int { return strings.Compare(a.Name(), b.Name()) })
	return out
}

func commandPage(c *cobra.Command) string {
	var b strings.Builder
	section(&b, c, 1)
	return b.String()
}

// section describes a command and, one level deeper, those below it.
func section(b *strings.Builder, c *cobra.Command, level int) {
	fmt.Fprintf(b, "%s %s\n\n", strings.Repeat("#", level), c.CommandPath())
	if c.Short != "" {
		fmt.Fprintf(b, "%s.\n\n", strings.TrimRight(c.Short, "."))
	}
	if c.Long != "" {
		fmt.Fprintf(b, "%s\n\n", strings.TrimSpace(c.Long))
	}
	below := visible(c)
	if c.Runnable() {
		b.WriteString(fence(c.UseLine()))
		b.WriteByte('\n')
	}
	if usages := c.NonInheritedFlags().FlagUsages(); usages != "" {
		b.WriteString(fence(usages))
		b.WriteByte('\n')
		if need := required(c, usages); len(need) > 0 {
			fmt.Fprintf(b, "Required: %s.\n\n", strings.Join(need, ", "))
		}
	}
	for _, s := range below {
		section(b, s, level+1)
	}
}

var flagName = regexp.MustCompile(`(?m)^\s+(?:-., )?--([a-z-]+)`)

// required names the flags that a command does not run without.
func required(c *cobra.Command, usages string) []string {
	var out []string
	for _, m := range flagName.FindAllStringSubmatch(usages, -1) {
		if f := c.Flag(m[1]); f != nil && len(f.Annotations[cobra.BashCompOneRequiredFlag]) > 0 {
			out = append(out, "`--"+m[1]+"`")
		}
	}
	return out
}

func fence(text string) string { return "```text\n" + strings.TrimRight(text, "\n") + "\n```\n" }

// cell keeps text within one cell of a table.
func cell(s string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(s), " "), "|", `\|`)
}
