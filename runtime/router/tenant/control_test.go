package tenant

import (
	"errors"
	"strings"
	"testing"

	"github.com/narwhal-fleet/narwhal/fleet"
)

func TestControl(t *testing.T) {
	const token = "control-token-of-the-fleet"
	c, err := NewControl(fleet.NewSecret(token))
	if err != nil {
		t.Fatal(err)
	}
	plain := NewSet(table(t, "a"))
	admin := NewSet(table(t, "a", `ops "admin":true`))
	for _, x := range []struct {
		name      string
		c         Control
		s         *Set
		auth, key string
		ok        bool
	}{
		{"no token, no tenants", Control{}, NewSet(nil), "", "", true}, {"no set", Control{}, nil, "Basic x", "", true},
		{"no token, no admin", Control{}, plain, "", "", true},
		{"token", c, plain, "Bearer " + token, "", true}, {"token as key", c, NewSet(nil), "", token, true}, {"token, no set", c, nil, "", token, true},
		{"no key", c, plain, "", "", false}, {"tenant's key", c, plain, "Bearer a-key", "", false}, {"part", c, plain, "Bearer " + token[1:], "", false},
		{"two", c, admin, "Bearer " + token, "ops-key", false},
		{"admin", c, admin, "Bearer ops-key", "", true}, {"admin, no token", Control{}, admin, "", "ops-key", true},
		{"other tenant", Control{}, admin, "Bearer a-key", "", false}, {"none for an admin", Control{}, admin, "", "", false},
	} {
		if err := x.c.Allow(x.s, x.auth, x.key); (err == nil) != x.ok || err != nil && !errors.Is(err, ErrUnauthorized) {
			t.Errorf("%s: %v", x.name, err)
		}
	}
	twice := map[string][]string{"Authorization": {"Bearer " + token, "Bearer " + token}}
	if err := c.AllowIn(plain, twice); !errors.Is(err, ErrUnauthorized) {
		t.Error("repeated header:", err)
	}
	if err := c.AllowIn(nil, map[string][]string{"X-Api-Key": {token}}); err != nil {
		t.Error(err)
	}
	if err := (Control{}).AllowIn(plain, twice); err != nil {
		t.Error("unguarded:", err)
	}
}

func TestControlTokenIsLongEnough(t *testing.T) {
	if c, err := NewControl(fleet.Secret{}); err != nil || c.Guarded(nil) {
		t.Error(c, err)
	}
	for _, bad := range []string{"short", "has a space in its middle", strings.Repeat("k", maxKeyBytes+1), "пароль-пароль-пароль"} {
		if _, err := NewControl(fleet.NewSecret(bad)); err == nil || strings.Contains(err.Error(), bad) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
