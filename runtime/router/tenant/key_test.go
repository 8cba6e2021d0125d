package tenant

import (
	"errors"
	"os/exec"
	"strings"
	"sync"
	"testing"
)

// table is a compiled file of tenants whose keys are "NAME-key".
func table(t testing.TB, rows ...string) *Table {
	t.Helper()
	var list []string
	for _, r := range rows {
		name, rest, _ := strings.Cut(r, " ")
		if rest != "" {
			rest = "," + rest
		}
		list = append(list, `{"name":"`+name+`","keys":["`+KeyDigest(name+"-key")+`"]`+rest+`}`)
	}
	tab, err := Parse([]byte(file(strings.Join(list, ","), "null")))
	if err != nil {
		t.Fatal(err)
	}
	return tab
}

func file(tenants, anonymous string) string {
	return `{"schema":"narwhal.tenants","schema_version":1,"tenants":[` + tenants + `],"anonymous":` + anonymous + `}`
}

func TestFind(t *testing.T) {
	s := NewSet(table(t, "b", "a", "c"))
	long := strings.Repeat("k", maxKeyBytes+1)
	for _, c := range []struct {
		auth, key, want string
		why             Reason
	}{
		{"Bearer a-key", "", "a", 0}, {"bearer  b-key", "", "b", 0}, {"", "c-key", "c", 0}, {"Bearer a-key", "a-key", "a", 0},
		{"", "", "", NoKey}, {"Bearer a-key", "b-key", "", BadKey}, {"Bearer a-key", "nobody", "", BadKey}, {"Bearer nobody", "a-key", "", BadKey},
		{"a-key", "", "", BadKey}, {"Basic a-key", "", "", BadKey}, {"Bearer", "", "", BadKey}, {"Bearer ", "", "", BadKey}, {"Basic x", "a-key", "", BadKey},
		{"Bearer a-key b", "", "", BadKey}, {"Bearer a-key,Bearer b-key", "", "", BadKey}, {"", "a\tkey", "", BadKey}, {"", "ключ", "", BadKey},
		{"", long, "", BadKey}, {"", long[1:], "", UnknownKey}, {"", "A-key", "", UnknownKey}, {"", KeyDigest("a-key"), "", UnknownKey},
	} {
		got, err := s.Find(c.auth, c.key)
		var u *UnauthorizedError
		switch {
		case c.why == 0 && (err != nil || got.Name != c.want):
			t.Errorf("%q %q: %v, %v", c.auth, c.key, got, err)
		case c.why != 0 && (got != nil || !errors.Is(err, ErrUnauthorized) || !errors.As(err, &u) || u.Why != c.why):
			t.Errorf("%q %q: %v, %v; want %s", c.auth, c.key, got, err, c.why)
		}
	}
	if n := s.Unauthorized(); n[NoKey] != 1 || n[BadKey] != 13 || n[UnknownKey] != 3 {
		t.Errorf("counted %v", n)
	}
}

func TestFindInRefusesRepeatedHeaders(t *testing.T) {
	s := NewSet(table(t, "a"))
	if x, err := s.FindIn(map[string][]string{"Authorization": {"Bearer a-key"}}); err != nil || x.Name != "a" {
		t.Error(x, err)
	}
	if _, err := s.FindIn(map[string][]string{"Authorization": {"Bearer a-key", "Bearer a-key"}}); !errors.Is(err, ErrUnauthorized) {
		t.Error(err)
	}
	if x, err := NewSet(nil).FindIn(map[string][]string{"X-Api-Key": {"a", "b"}}); err != nil || x.Name != AnonymousName {
		t.Error("open:", x, err)
	}
}

func TestAnonymous(t *testing.T) {
	tab, err := Parse([]byte(file("", `{"max_inflight":3}`)))
	if err != nil {
		t.Fatal(err)
	}
	if x, err := tab.Find("", ""); err != nil || x.Name != AnonymousName || x.Limits.MaxInflight != 3 || x.Limits.Weight != 1 {
		t.Errorf("%+v %v", x, err)
	}
	if x, err := tab.Find("Bearer wrong", ""); err == nil {
		t.Errorf("a wrong key is %v", x)
	}
	if x, err := NewSet(nil).Find("Basic whatever", "else"); err != nil || x.Name != AnonymousName || x.Limits != (Limits{Weight: 1}) {
		t.Errorf("open: %+v %v", x, err)
	}
}

// The digest is what the hint of the reader tells how to make.
func TestKeyDigestIsSha256sum(t *testing.T) {
	cmd := exec.Command("sh", "-c", `printf %s "$KEY" | sha256sum`)
	cmd.Env = append(cmd.Environ(), "KEY=a-key")
	out, err := cmd.Output()
	if err != nil {
		t.Skip("no sha256sum: ", err)
	}
	if want := "sha256:" + strings.Fields(string(out))[0]; KeyDigest("a-key") != want {
		t.Errorf("got %s, want %s", KeyDigest("a-key"), want)
	}
}

func TestFindAllocatesNothing(t *testing.T) {
	s := NewSet(table(t, "a", "b"))
	if n := testing.AllocsPerRun(100, func() { _, _ = s.Find("Bearer b-key", "") }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// A table may be replaced while others look into it.
func TestPublishBesideFind(t *testing.T) {
	a, ab := table(t, "a"), table(t, "a", "b")
	s := NewSet(a)
	var g sync.WaitGroup
	for range 4 {
		g.Go(func() {
			for range 500 {
				if _, err := s.Find("", "a-key"); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range 500 {
		s.Publish([]*Table{a, ab}[i%2])
	}
	g.Wait()
}
