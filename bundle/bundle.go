// Package bundle collects what a diagnosis of a fleet needs into one archive, and reads
// such archives offline.
//
// It promises that every answer, or why there is none, is named in the manifest; that a
// host which fails or hangs costs the bundle that host only; that secrets are cut before
// anything is written, temporary files included; that the same answers give the same
// bytes; and that a reader proves every byte of an archive against its manifest within
// fixed bounds.
//
// It refuses to change a host, to run a command that Scripts does not list, to collect
// private key files, to alter evidence of a record (what holds a secret is left out and
// named), and to extract anything: a reader hands out bytes.
//
// An archive is a gzip'd tar: manifest.json first, then the other files by name.
package bundle

import (
	"context"
	"fmt"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/fleet/remote"
)

// Schema and Version name the manifest's format.
const (
	Schema  = "narwhal.bundle"
	Version = 1
)

// Limits of a collection.
const (
	maxFile    = 8 << 20   // bytes of one JSON file of a host
	maxLog     = 1 << 20   // bytes kept of the end of a log
	maxJournal = 4 << 20   // bytes kept of the end of the router's journal
	maxScript  = 512 << 10 // bytes of a host's own description
	maxAnswer  = 8 << 20   // bytes of one HTTP answer
	maxRecord  = 64 << 20  // bytes of one file of the record
	maxNested  = 16 << 20  // bytes of an earlier bundle in the record: each holds those before it
	maxTotal   = 1 << 30   // bytes of all files together, and of what a reader unpacks
	maxListed  = 256       // files of a host taken from its own list
	maxWhy     = 400       // bytes of a reason

	scriptLimit = 20 * time.Second
	fileLimit   = 30 * time.Second
	answerLimit = 10 * time.Second
	openLimit   = 60 * time.Second
	hostLimit   = 3 * time.Minute // everything of one host
	fanOut      = 8               // hosts at once where the fleet sets no limit
)

// Host is what a collection needs of a host; *remote.Host is one. Its answers are untrusted.
type Host interface {
	Run(context.Context, remote.Command) (remote.Result, error)
	Get(ctx context.Context, path string, max int64) ([]byte, error)
}

// Source is where a bundle comes from. Host and HTTP are called from several goroutines.
type Source struct {
	Fleet fleet.Fleet
	// RunDir is the folder of the run whose record is taken, "" for none.
	RunDir string
	// Host opens a host by its id; the caller closes it after Collect.
	Host func(ctx context.Context, id string) (Host, error)
	// HTTP asks a URL from a host, with one GET. A body beside a *StatusError is an answer too.
	HTTP func(ctx context.Context, host, url string) ([]byte, error)
	Now  func() time.Time // nil = time.Now
	// Literals are secrets to cut wherever they appear.
	Literals []fleet.Secret
	// Key makes the placeholders of secrets. nil is a fresh one that is forgotten, so that no
	// reader can try guesses; a fixed one gives equal bundles for equal answers.
	Key []byte
	// Tool is the version of the program that collects.
	Tool string
}

// StatusError is an HTTP answer with a status other than 2xx.
type StatusError struct{ Status int }

func (e *StatusError) Error() string { return fmt.Sprintf("get: the answer has status %d", e.Status) }

// Missing is something that is not in the bundle, and why.
type Missing struct {
	Path string `json:"path"`
	Why  string `json:"why"`
}

// Summary is what a collection gave.
type Summary struct {
	SHA256     string    `json:"sha256"` // of the archive
	Bytes      int64     `json:"bytes"`  // of the archive
	Hosts      []string  `json:"hosts"`  // that answered
	Collected  int       `json:"collected"`
	Missing    []Missing `json:"missing"`
	Redactions int       `json:"redactions"`
}
