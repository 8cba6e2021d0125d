package docgen

import (
	"strings"
)

// Section is one table of a page, with text before and after it.
type Section struct {
	Title  string // "" for a table below the page's own title
	Before string
	Head   []string
	Rows   [][]string
	After  string
}

// Sections makes a page of tables. Each row has as many cells as its table has columns.
func Sections(path, title, intro string, sections ...Section) Page {
	var b strings.Builder
	paragraph(&b, "# "+title)
	paragraph(&b, intro)
	for _, s := range sections {
		if s.Title != "" {
			paragraph(&b, "## "+s.Title)
		}
		paragraph(&b, s.Before)
		if len(s.Rows) > 0 {
			line(&b, s.Head)
			line(&b, strings.Split(strings.Repeat("--- ", len(s.Head)-1)+"---", " "))
			for _, r := range s.Rows {
				line(&b, r)
			}
			b.WriteByte('\n')
		}
		paragraph(&b, s.After)
	}
	return Page{path, b.String()}
}

func paragraph(b *strings.Builder, text string) {
	if text != "" {
		b.WriteString(text + "\n\n")
	}
}

func line(b *strings.Builder, cells []string) {
	for _, c := range cells {
		if c = cell(c); c != "" {
			c += " "
		}
		b.WriteString("| " + c)
	}
	b.WriteString("|\n")
}
