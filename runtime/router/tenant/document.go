package tenant

import (
	"cmp"
	"fmt"
	"io"
	"regexp"
	"slices"
)

// The document's name and version, and what bounds it. With the anonymous tenant, a table
// has at most MaxTenants+1 rows.
const (
	Schema        = "narwhal.tenants"
	SchemaVersion = 1
	MaxTenants    = 256
	MaxKeys       = 1024    // over all tenants, each compared on every request
	MaxFileBytes  = 1 << 20 // of the file
)

var tenantName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,62}$`)

// Read reads a tenants file strictly: every member is known, has its kind and stands once.
// The error joins everything that is wrong, each an *FileError.
func Read(in io.Reader) (*Table, error) {
	b, err := io.ReadAll(io.LimitReader(in, MaxFileBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read tenants file: %w", err)
	}
	return Parse(b)
}

// Parse is Read on bytes.
func Parse(b []byte) (*Table, error) {
	r := &reader{}
	if len(b) > MaxFileBytes {
		r.bad("", fmt.Sprintf("is larger than %d bytes", MaxFileBytes), "")
		return nil, r.err()
	}
	v, ok := parse(b, r)
	if !ok {
		return nil, r.err()
	}
	t := r.document(v)
	if err := r.err(); err != nil {
		return nil, err
	}
	t.compile()
	return t, nil
}

func (r *reader) document(v any) *Table {
	t := &Table{}
	o, ok := v.(object)
	if !ok {
		r.bad("", "is no object", "")
		return t
	}
	r.known("", o, "schema", "schema_version", "tenants", "anonymous")
	if o["schema"] != Schema {
		r.bad("schema", fmt.Sprintf("is not %q", Schema), "")
	}
	if n, ok := whole(o["schema_version"]); !ok || n != SchemaVersion {
		r.bad("schema_version", fmt.Sprintf("is not %d", SchemaVersion), "")
	}
	list, ok := o["tenants"].([]any)
	switch {
	case !ok:
		r.bad("tenants", "is no list", "")
	case len(list) > MaxTenants:
		r.bad("tenants", fmt.Sprintf("has %d entries, at most %d are served", len(list), MaxTenants), "")
		list = nil
	}
	names, keys := map[string]string{}, map[digest]string{}
	for i, e := range list {
		r.tenant(t, fmt.Sprintf("tenants[%d]", i), e, names, keys)
	}
	if a := o["anonymous"]; a != nil {
		t.anonymous = r.anonymous(a)
	} else if l, _ := o["tenants"].([]any); ok && len(l) == 0 {
		r.bad("tenants", "is empty, and anonymous is null: nobody could come in", "add a tenant, or set anonymous to {}")
	}
	return t
}

func (r *reader) tenant(t *Table, member string, v any, names map[string]string, keys map[digest]string) {
	o, ok := v.(object)
	if !ok {
		r.bad(member, "is no object", "")
		return
	}
	r.known(member, o, "name", "keys", "admin", "weight", "max_inflight", "tokens_per_s", "burst_tokens")
	x := &Tenant{Limits: r.limits(member, o)}
	x.Name, _ = o["name"].(string)
	switch first, twice := names[x.Name]; {
	case !tenantName.MatchString(x.Name):
		r.bad(member+".name", "is no name", "1 to 63 lower-case letters, digits, dots, dashes and underscores")
	case x.Name == AnonymousName:
		r.bad(member+".name", "is the name of clients without a key", "choose another, or use the member anonymous")
	case twice:
		r.bad(member+".name", "is the name of "+first+" too", "")
	default:
		names[x.Name] = member
	}
	if a, given := o["admin"]; given {
		if x.Admin, ok = a.(bool); !ok {
			r.bad(member+".admin", "is neither true nor false", "")
		}
	}
	r.keys(t, member+".keys", o["keys"], keys)
	t.tenants = append(t.tenants, x)
}

// keys appends the digests of the tenant that is about to be appended.
func (r *reader) keys(t *Table, member string, v any, seen map[digest]string) {
	list, ok := v.([]any)
	if !ok || len(list) == 0 {
		r.bad(member, "is no list of digests", "a tenant without a key could not come in")
		return
	}
	for i, e := range list {
		at := fmt.Sprintf("%s[%d]", member, i)
		text, _ := e.(string)
		d, ok := parseDigest(text)
		if !ok {
			r.bad(at, `is not "sha256:" and 64 hexadecimal digits`, `a key itself never stands here; its digest: printf %s "$KEY" | sha256sum`)
			continue
		}
		if first, twice := seen[d]; twice {
			r.bad(at, "is "+first+" too", "each key belongs to one tenant")
			continue
		}
		seen[d] = at
		t.keys, t.owner = append(t.keys, d), append(t.owner, len(t.tenants))
	}
	if n := len(t.keys); n > MaxKeys && n-len(list) <= MaxKeys {
		r.bad(member, fmt.Sprintf("brings the keys to more than %d", MaxKeys), "")
	}
}

func (r *reader) anonymous(v any) *Tenant {
	o, ok := v.(object)
	if !ok {
		r.bad("anonymous", "is neither null nor an object", "")
		return nil
	}
	r.known("anonymous", o, "weight", "max_inflight", "tokens_per_s", "burst_tokens")
	return &Tenant{Name: AnonymousName, Limits: r.limits("anonymous", o)}
}

// compile brings the tenants into the order of their names.
func (t *Table) compile() {
	old := slices.Clone(t.tenants)
	slices.SortFunc(t.tenants, func(a, b *Tenant) int { return cmp.Compare(a.Name, b.Name) })
	at := map[*Tenant]int{}
	for i, x := range t.tenants {
		at[x] = i
	}
	for i, o := range t.owner {
		t.owner[i] = at[old[o]]
	}
}
