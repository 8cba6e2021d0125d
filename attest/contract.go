package attest

import (
	"fmt"
	"maps"
	"slices"

	"github.com/narwhal-fleet/narwhal/attest/canonical"
	"github.com/narwhal-fleet/narwhal/fleet"
)

// ContractDifference is one field in which two contracts differ, as canonical text.
type ContractDifference struct{ Field, Want, Got string }

// DiffContracts compares every field, in order of their names.
func DiffContracts(want, got fleet.Contract) ([]ContractDifference, error) {
	w, err := ContractFields(want)
	if err != nil {
		return nil, err
	}
	g, err := ContractFields(got)
	if err != nil {
		return nil, err
	}
	var out []ContractDifference
	for _, name := range slices.Sorted(maps.Keys(w)) {
		a, err := canonical.Encode(w[name])
		if err != nil {
			return nil, err
		}
		b, err := canonical.Encode(g[name])
		if err != nil {
			return nil, err
		}
		if string(a) != string(b) {
			out = append(out, ContractDifference{Field: name, Want: string(a), Got: string(b)})
		}
	}
	return out, nil
}

func contractDifferences(want, got fleet.Contract) []error {
	diffs, err := DiffContracts(want, got)
	if err != nil {
		return []error{fmt.Errorf("%w: %w", ErrContract, err)}
	}
	var out []error
	for _, d := range diffs {
		out = append(out, fmt.Errorf("%w: %s: want %s, got %s", ErrContract, d.Field, clip(d.Want), clip(d.Got)))
	}
	return out
}
