package main

import (
	"io"
	"os"

	"golang.org/x/term"
)

// isTerminal reports whether a person sits at the other end.
func isTerminal(v io.Reader) bool {
	f, ok := v.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
