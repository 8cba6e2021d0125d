package ownfile

import (
	"fmt"
	"os"
)

// Use is what one process does with a path.
type Use struct {
	What   string // for errors: the state file
	Path   string
	Writes bool
}

// ClashError means that a file which is written is used for something else too.
type ClashError struct{ A, B Use }

func (e *ClashError) Error() string {
	if e.A.Path == e.B.Path {
		return fmt.Sprintf("%s and %s are one file, %s", e.A.What, e.B.What, e.A.Path)
	}
	return fmt.Sprintf("%s %s and %s %s are one file", e.A.What, e.A.Path, e.B.What, e.B.Path)
}

// Distinct returns a *ClashError when two uses meet in one file and at least one writes it: by
// the same path behind links, or as two names of one file.
func Distinct(uses []Use) error {
	type place struct {
		real string
		info os.FileInfo // nil = absent
	}
	at := make([]place, len(uses))
	for i, u := range uses {
		real, err := Real(u.Path)
		if err != nil {
			return fmt.Errorf("%s: %w", u.What, err)
		}
		at[i].real = real
		at[i].info, _ = os.Stat(real) // what cannot be asked is compared by its name
		for k, v := range uses[:i] {
			same := at[k].real == real || at[k].info != nil && at[i].info != nil && os.SameFile(at[k].info, at[i].info)
			if same && (u.Writes || v.Writes) {
				return &ClashError{v, u}
			}
		}
	}
	return nil
}
