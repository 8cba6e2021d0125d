package main

import (
	"strings"

	"github.com/narwhal-fleet/narwhal/internal/docgen"
	"github.com/narwhal-fleet/narwhal/runtime/journal"
	"github.com/narwhal-fleet/narwhal/runtime/router"
)

const journalIntro = "One JSON object a line. A file begins with a meta line; then comes one row for each request that was offered, and one line\n" +
	"for each event. Members that a reader does not know may come at any time. [Compatibility](compatibility.md) tells how rows differ\n" +
	"from the reference's, how files end and what a full disk does.\n\n" +
	"Times are seconds on the router's clock, which begins at 0 with its process and never jumps; *wall* is Unix time."

func journalPage() docgen.Page {
	head := []string{"Member", "Type", "Unit", "When", "Meaning"}
	table := func(title, before string, fields []journal.Field) docgen.Section {
		s := docgen.Section{Title: title, Before: before, Head: head}
		for _, f := range fields {
			s.Rows = append(s.Rows, []string{code(f.Key), f.Type, f.Unit, f.When, f.Says})
		}
		return s
	}
	sections := []docgen.Section{
		table("The meta line", "All within `meta`.", journal.MetaFields()),
		table("The head of every other line", "", journal.HeadFields()),
		table("The row of a request", "After the head, in this order. *When* names members that are left out otherwise; a member without a value is null.", journal.RowFields()),
		table("What a decision was made from", "Within `decision.inputs` of a row and `inputs` of controller_decision. `narwhal simulate --replay-decisions` makes each decision again and compares all of its members.", journal.InputsFields()),
		reasonSection(),
		{Title: "Events", Before: "After the head come `event` (its name), `at` (seconds, router) and `at_unix` (seconds, wall), then what its kind has, by name."},
	}
	for _, k := range journal.EventKinds() {
		s := table("", k.Says, k.Fields)
		s.Before = "### " + k.Name + "\n\n" + s.Before
		sections = append(sections, s)
	}
	return docgen.Sections("journal.md", "Journal", journalIntro, sections...)
}

// reasonSection collects the reasons of each terminal from the table of errors.
func reasonSection() docgen.Section {
	s := docgen.Section{Title: "Terminals and reasons", Before: "How a request ended, and the reasons that a row of it can have. [Errors](errors.md) has what the client was told.",
		Head: []string{"`terminal`", "`reason`"}}
	order := []string{journal.Completed, journal.Refused, journal.Rejected, journal.Expired, journal.Failed, journal.Invalid, journal.Cancelled}
	for _, t := range order {
		var reasons []string
		seen := map[string]bool{}
		for _, e := range router.Errors() {
			for _, r := range e.Reasons {
				if e.Terminal == t && !seen[string(r)] {
					seen[string(r)] = true
					reasons = append(reasons, code(string(r)))
				}
			}
		}
		cell := "none"
		if len(reasons) > 0 {
			cell = strings.Join(reasons, ", ")
		}
		s.Rows = append(s.Rows, []string{code(t), cell})
	}
	return s
}
