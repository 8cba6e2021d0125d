package main

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/narwhal-fleet/narwhal/internal/problem"
)

// strict completes a command tree: groups refuse verbs that they lack instead of printing
// help, and help marks the flags that must be given.
func strict(c *cobra.Command) {
	for _, sub := range c.Commands() {
		strict(sub)
	}
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if _, must := f.Annotations[cobra.BashCompOneRequiredFlag]; must && !strings.HasSuffix(f.Usage, "(required)") {
			f.Usage += " (required)"
		}
	})
	if c.HasParent() && c.HasSubCommands() && !c.Runnable() {
		c.Args = cobra.ArbitraryArgs
		c.DisableFlagsInUseLine = true
		c.RunE = func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return c.Help()
			}
			return unknownVerb(c, args[0])
		}
	}
}

func unknownVerb(c *cobra.Command, name string) error {
	hint := c.CommandPath() + " --help lists the verbs"
	c.SuggestionsMinimumDistance = 2
	if near := c.SuggestionsFor(name); len(near) > 0 {
		hint = "did you mean " + c.CommandPath() + " " + strings.Join(near, " or ") + "?"
	} else if names := verbNames(c); len(names) > 0 {
		hint = "known: " + strings.Join(names, ", ")
	}
	return problem.New(problem.Invalid, "invalid_arguments", fmt.Sprintf("%s has no verb %q", c.CommandPath(), name), hint)
}

func verbNames(c *cobra.Command) []string {
	var out []string
	for _, s := range c.Commands() {
		if s.IsAvailableCommand() {
			out = append(out, s.Name())
		}
	}
	return out
}

// helpVerb replaces the help command that ends with success whatever it is asked.
func helpVerb() *cobra.Command {
	return &cobra.Command{
		Use: "help [command]", Short: "Help about any command", Long: "Help provides help for any command.\nType narwhal help [path to command] for its details.",
		RunE: func(c *cobra.Command, args []string) error {
			at := c.Root()
			for _, name := range args {
				i := slices.IndexFunc(at.Commands(), func(s *cobra.Command) bool { return s.Name() == name || s.HasAlias(name) })
				if i < 0 {
					return unknownVerb(at, name)
				}
				at = at.Commands()[i]
			}
			at.InitDefaultHelpFlag()
			return at.Help()
		},
	}
}

// knownFormat refuses a --format that no verb takes. validate has more and checks its own.
func (a *app) knownFormat(c *cobra.Command, _ []string) error {
	if a.format == "text" || a.format == "json" || c.Name() == "validate" {
		return inRange(c)
	}
	return problem.New(problem.Invalid, "invalid_arguments", fmt.Sprintf("--format %q is not known", a.format), "choose text or json")
}

// asksJSON finds --format json on a command line that was not parsed to its end.
func asksJSON(args []string) bool {
	for i, s := range args {
		switch {
		case s == "--":
			return false
		case s == "--format=json", s == "--format" && i+1 < len(args) && args[i+1] == "json":
			return true
		}
	}
	return false
}

// usage turns cobra's refusal of a command line into a problem in plain words; nil for
// any other error.
func usage(c *cobra.Command, err error) error {
	var p *problem.Problem
	if errors.As(err, &p) {
		return nil
	}
	m := err.Error()
	if name := unknownTop.FindStringSubmatch(m); name != nil {
		return unknownVerb(c.Root(), name[1])
	}
	if flags := missingFlags.FindStringSubmatch(m); flags != nil {
		return refused(c, c.CommandPath()+" needs "+quotedName.ReplaceAllString(flags[1], "--$1"))
	}
	for _, s := range cobraForms {
		if s.form.MatchString(m) {
			return refused(c, oneOf.Replace(s.form.ReplaceAllString(m, strings.ReplaceAll(s.plain, "VERB", c.CommandPath()))))
		}
	}
	return nil
}

func refused(c *cobra.Command, says string) error {
	return problem.New(problem.Invalid, "invalid_arguments", says, c.CommandPath()+" --help lists what it takes")
}

var (
	unknownTop   = regexp.MustCompile(`^unknown command "(.*?)" for "narwhal"`)
	missingFlags = regexp.MustCompile(`^required flag\(s\) (.*) not set$`)
	quotedName   = regexp.MustCompile(`"([a-z0-9-]+)"`)
	oneOf        = strings.NewReplacer(" 1 arguments", " 1 argument", "; 1 are", "; 1 is")
)

// cobraForms are the forms of cobra's and pflag's errors, with plainer words. Text that
// the user wrote stays in $1 and following.
var cobraForms = []struct {
	form  *regexp.Regexp
	plain string
}{
	{regexp.MustCompile(`^accepts (\d+) arg\(s\), received (\d+)$`), "VERB takes $1 arguments; $2 are given"},
	{regexp.MustCompile(`^accepts at most (\d+) arg\(s\), received (\d+)$`), "VERB takes at most $1 arguments; $2 are given"},
	{regexp.MustCompile(`^accepts between (\d+) and (\d+) arg\(s\), received (\d+)$`), "VERB takes $1 to $2 arguments; $3 are given"},
	{regexp.MustCompile(`^requires at least (\d+) arg\(s\), only received (\d+)$`), "VERB takes at least $1 arguments; $2 are given"},
	{regexp.MustCompile(`(?s)^unknown command (.*?) for ".*?"(\n.*)?$`), "VERB takes no such argument: $1"},
	{regexp.MustCompile(`^invalid argument (.*) for "(.*)" flag: strconv\.Parse(?:Int|Uint).*$`), "$2 wants a whole number, got $1"},
	{regexp.MustCompile(`^invalid argument (.*) for "(.*)" flag: strconv\.ParseFloat.*$`), "$2 wants a number, got $1"},
	{regexp.MustCompile(`^invalid argument (.*) for "(.*)" flag: strconv\.ParseBool.*$`), "$2 wants true or false, got $1"},
	{regexp.MustCompile(`^invalid argument (.*) for "(.*)" flag: time: .*$`), "$2 wants a duration such as 300ms or 2m, got $1"},
	{regexp.MustCompile(`^(invalid argument .*|unknown (shorthand )?flag.*|flag needs an argument.*|bad flag syntax.*|if any flags in the group.*|at least one of the flags.*)$`), "$1"},
}
