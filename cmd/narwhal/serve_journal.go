package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/narwhal-fleet/narwhal/fleet"
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
	c.Flags().IntVar(&f.megabytes, "journal-max-mb", fleet.DefaultRotateBytes>>20, "size at which a journal file ends and the next begins; 0 = never")
	c.Flags().DurationVar(&f.age, "journal-max-age", 0, "age at which a journal file ends, for example 24h; 0 = never")
	c.Flags().IntVar(&f.keep, "journal-keep", fleet.DefaultKeep, "ended journal files that are kept; 0 = all")
	c.Flags().BoolVar(&f.lossless, "journal-lossless", false, "let requests wait for the disk, 30 s at most, when the journal's queue is full, instead of losing rows")
}

func (f journalFlags) options() journal.Options {
	return journal.Options{Lossless: f.lossless, MaxBytes: int64(f.megabytes) << 20, MaxAge: f.age, Keep: f.keep}
}
