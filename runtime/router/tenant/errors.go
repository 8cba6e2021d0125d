package tenant

import (
	"errors"
	"fmt"
)

// FileError is one thing that is wrong with a tenants file. It never repeats a value.
type FileError struct {
	// Member is the place, such as tenants[1].keys[0]; "" is the file itself.
	Member string
	Says   string
	// Hint says what to do, "" if Says does.
	Hint string
}

func (e *FileError) Error() string {
	s := "read tenants file: "
	if e.Member != "" {
		s += e.Member + " "
	} else {
		s += "it "
	}
	s += e.Says
	if e.Hint != "" {
		s += " (" + e.Hint + ")"
	}
	return s
}

// maxFaults bounds how many faults of one file are told.
const maxFaults = 50

// reader collects what is wrong with one file.
type reader struct {
	faults []error
	more   int
}

func (r *reader) bad(member, says, hint string) {
	if len(r.faults) >= maxFaults {
		r.more++
		return
	}
	r.faults = append(r.faults, &FileError{member, says, hint})
}

func (r *reader) err() error {
	if r.more > 0 {
		return errors.Join(append(r.faults, fmt.Errorf("read tenants file: %d more faults", r.more))...)
	}
	return errors.Join(r.faults...)
}
