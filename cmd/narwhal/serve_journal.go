package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/narwhal-fleet/narwhal/internal/problem"
	"github.com/narwhal-fleet/narwhal/runtime/journal"
)

// journalFlags say how the router's journal grows and what it does without room.
type journalFlags struct {
	megabytes int
	age       time.Duration
	keep      int
	lossless  bool
}

func (f *journalFlags) add(c *cobra.Command) {
	c.Flags().IntVar(&f.megabytes, "journal-max-mb", 256, "size at which a journal file ends and the next begins; 0 = never")
	c.Flags().DurationVar(&f.age, "journal-max-age", 0, "age at which a journal file ends, for example 24h; 0 = never")
	c.Flags().IntVar(&f.keep, "journal-keep", 0, "ended journal files that are kept; 0 = all")
	c.Flags().BoolVar(&f.lossless, "journal-lossless", false, "let requests wait for the disk, 30 s at most, when the journal's queue is full, instead of losing rows")
}

func (f journalFlags) valid() error {
	for name, bad := range map[string]bool{"--journal-max-mb": f.megabytes < 0, "--journal-max-age": f.age < 0, "--journal-keep": f.keep < 0} {
		if bad {
			return problem.New(problem.Invalid, "invalid_arguments", fmt.Sprintf("%s is negative", name), name+" takes 0 or more; 0 means never, or all")
		}
	}
	return nil
}

func (f journalFlags) options() journal.Options {
	return journal.Options{Lossless: f.lossless, MaxBytes: int64(f.megabytes) << 20, MaxAge: f.age, Keep: f.keep}
}
