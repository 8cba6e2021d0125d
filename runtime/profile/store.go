package profile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Schema and Version name the store's document.
const (
	Schema  = "narwhal.profiles"
	Version = 1
)

// maxStoreBytes bounds a store that is read.
const maxStoreBytes = 16 << 20

// Store is the narwhal.profiles document. Meta says who measured, freely.
type Store struct {
	Schema  string         `json:"schema"`
	Version int            `json:"schema_version"`
	Meta    map[string]any `json:"meta"`
	Rows    []Row          `json:"profiles"`
}

// NewStore returns a store of this version.
func NewStore(meta map[string]any, rows ...Row) Store {
	if meta == nil {
		meta = map[string]any{}
	}
	return Store{Schema: Schema, Version: Version, Meta: meta, Rows: rows}
}

// ReadStore reads and checks a store. Every problem is reported, joined.
func ReadStore(r io.Reader) (Store, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxStoreBytes+1))
	if err != nil {
		return Store{}, fmt.Errorf("read profile store: %w", err)
	}
	if len(b) > maxStoreBytes {
		return Store{}, fmt.Errorf("read profile store: longer than %d bytes", maxStoreBytes)
	}
	var head struct {
		Schema  string `json:"schema"`
		Version int    `json:"schema_version"`
	}
	if err := json.Unmarshal(b, &head); err != nil {
		return Store{}, fmt.Errorf("read profile store: %w", err)
	}
	if head.Schema != Schema || head.Version != Version {
		return Store{}, fmt.Errorf("read profile store: schema %q version %d, want %q version %d",
			head.Schema, head.Version, Schema, Version)
	}
	var s Store
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&s); err != nil {
		return Store{}, fmt.Errorf("read profile store: %w", err)
	}
	if dec.More() {
		return Store{}, errors.New("read profile store: data after the document")
	}
	if err := s.Check(); err != nil {
		return Store{}, fmt.Errorf("read profile store: %w", err)
	}
	return s, nil
}

// Encode returns the store as indented JSON with its rows sorted.
func (s Store) Encode() ([]byte, error) {
	if err := s.Check(); err != nil {
		return nil, fmt.Errorf("write profile store: %w", err)
	}
	s.Rows = slices.Clone(s.Rows)
	slices.SortFunc(s.Rows, compareRows)
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write profile store: %w", err)
	}
	return append(b, '\n'), nil
}

// Check returns what is wrong with the store, joined; nil for nothing.
func (s Store) Check() error {
	var errs []error
	seen := map[string]bool{}
	for i, r := range s.Rows {
		if err := r.check(); err != nil {
			errs = append(errs, fmt.Errorf("profiles[%d] (%q): %w", i, r.IID, err))
		}
		k := r.key()
		if seen[k] {
			errs = append(errs, fmt.Errorf("profiles[%d]: engine %q appears twice", i, r.IID))
		}
		seen[k] = true
	}
	return errors.Join(errs...)
}

// Row returns the row of an engine that has a device to itself.
func (s Store) Row(iid string) (Row, bool) {
	for _, r := range s.Rows {
		if r.IID == iid && r.ColocatedGroup == nil {
			return r, true
		}
	}
	return Row{}, false
}

// Digest marks a row as bound to no generation: it must be measured again.
const noDigest = ""

// Bound reports whether the row was measured on the generation with this digest.
func (r Row) Bound(digest string) bool {
	return digest != noDigest && r.GenerationDigest != nil && *r.GenerationDigest == digest
}

func compareRows(a, b Row) int { return strings.Compare(a.key(), b.key()) }
