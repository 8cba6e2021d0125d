package tenant

import (
	"crypto/subtle"
	"slices"
)

// AnonymousName is the name of the tenant of clients without a key.
const AnonymousName = "anonymous"

// Limits bound one tenant. A limit of 0 is none.
type Limits struct {
	// Weight sets the tenant's share of the seats beside the other weights; above 0.
	Weight float64
	// MaxInflight is how many requests may run at once.
	MaxInflight int
	// TokensPerS refills the bucket, in tokens of prompt and output a second.
	TokensPerS float64
	// BurstTokens is what the bucket holds, and so the most that one request may ask for.
	BurstTokens float64
}

// Tenant is one row of a table. Tables share tenants: they are read only.
type Tenant struct {
	// Name is 1 to 63 lower-case letters, digits, dots, dashes and underscores.
	Name   string
	Limits Limits
	// Admin lets the tenant's keys into the control routes, see Control.
	Admin bool
}

// Table is a compiled tenants file. It does not change.
type Table struct {
	tenants   []*Tenant // by name
	keys      []digest
	owner     []int   // of each key, index into tenants
	anonymous *Tenant // nil: a key is needed
	open      bool    // nobody is asked for a key
}

// Open returns the table of a router without a tenants file: whoever comes, with whatever
// key, is one anonymous tenant without limits.
func Open() *Table {
	return &Table{anonymous: &Tenant{Name: AnonymousName, Limits: Limits{Weight: 1}}, open: true}
}

// Tenants lists the tenants by name, the anonymous one last, if there is one.
func (t *Table) Tenants() []*Tenant {
	out := slices.Clone(t.tenants)
	if t.anonymous != nil {
		out = append(out, t.anonymous)
	}
	return out
}

// HasAdmin reports whether a tenant may use the control routes.
func (t *Table) HasAdmin() bool {
	return slices.ContainsFunc(t.tenants, func(x *Tenant) bool { return x.Admin })
}

// Find returns the tenant of the key that a request's Authorization ("Bearer KEY") and
// X-API-Key headers hold; a header that is absent is "". The error is an
// *UnauthorizedError, made once and shared.
func (t *Table) Find(authorization, apiKey string) (*Tenant, error) {
	if t.open {
		return t.anonymous, nil
	}
	d, why := presented(authorization, apiKey)
	switch {
	case why == NoKey && t.anonymous != nil:
		return t.anonymous, nil
	case why != Admitted:
		return nil, unauthorized[why]
	}
	i, ok := t.match(d)
	if !ok {
		return nil, unauthorized[UnknownKey]
	}
	return t.tenants[i], nil
}

// match compares with every key, so that its time tells neither whether nor where one fits.
func (t *Table) match(d digest) (owner int, ok bool) {
	hit := 0
	for i := range t.keys {
		eq := subtle.ConstantTimeCompare(t.keys[i][:], d[:])
		hit |= eq
		owner = subtle.ConstantTimeSelect(eq, t.owner[i], owner)
	}
	return owner, hit == 1
}
