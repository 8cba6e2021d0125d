package problem

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// TestCodes holds the table that scripts rely on.
func TestCodes(t *testing.T) {
	want := map[Status]int{
		"success": 0, "failed_gate": 1, "invalid_input": 2, "degraded": 3, "error": 4, "locked": 5, "refused": 6, "residue": 7, "unverified": 8,
		"interrupted": 130, "terminated": 143,
	}
	if len(Codes) != len(want) {
		t.Errorf("%d codes, want %d", len(Codes), len(want))
	}
	exits := map[int]bool{}
	for _, c := range Codes {
		if want[c.Status] != c.Exit || c.Status.Exit() != c.Exit || c.Meaning == "" || exits[c.Exit] {
			t.Errorf("%s is %d, want %d", c.Status, c.Exit, want[c.Status])
		}
		exits[c.Exit] = true
	}
	if Status("unheard of").Exit() != 4 || Status("").Exit() != 4 {
		t.Error("an unknown status is no error")
	}
}

func TestStatusOf(t *testing.T) {
	cause := errors.New("cause")
	locked := New(Locked, "held", "somebody holds it", "wait")
	for name, c := range map[string]struct {
		err    error
		want   Status
		number int
	}{
		"nothing":            {nil, Success, 0},
		"a plain error":      {cause, Failed, 0},
		"a problem":          {locked, Locked, 1},
		"wrapped":            {fmt.Errorf("do: %w", locked), Locked, 1},
		"joined":             {errors.Join(cause, locked), Locked, 1},
		"a set":              {Set{locked, New(Refused, "no", "no", "")}, Locked, 2},
		"a wrapped set":      {fmt.Errorf("do: %w", Set{locked}), Locked, 1},
		"without a status":   {&Problem{Message: "x"}, Failed, 1},
		"the first with one": {Set{&Problem{Message: "x"}, locked}, Locked, 2},
		"an empty set":       {Set{}, Failed, 0},
	} {
		if got := StatusOf(c.err); got != c.want || len(All(c.err)) != c.number {
			t.Errorf("%s: %s with %d problems, want %s with %d", name, got, len(All(c.err)), c.want, c.number)
		}
	}
}

func TestWrap(t *testing.T) {
	cause := errors.New("disk full")
	p := Wrap(Failed, "write", "write the record", cause, "free space")
	if p.Error() != "write the record: disk full" || !errors.Is(p, cause) || p.Hint != "free space" || p.Status != Failed {
		t.Errorf("%+v", p)
	}
	if New(Failed, "c", "m", "").Unwrap() != nil {
		t.Error("a problem without a cause has one")
	}
}

func TestSetError(t *testing.T) {
	a, b := New(Failed, "a", "first", ""), New(Failed, "b", "second", "")
	for _, c := range []struct {
		set  Set
		want string
	}{{nil, "no problem"}, {Set{a}, "first"}, {Set{a, b, b}, "first (and 2 more)"}} {
		if got := c.set.Error(); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// TestJSON leaves out what does not apply, and the cause.
func TestJSON(t *testing.T) {
	b, err := json.Marshal(Wrap(Invalid, "bad_port", "read port", errors.New("x"), ""))
	if err != nil || string(b) != `{"code":"bad_port","message":"read port: x"}` {
		t.Errorf("%s, %v", b, err)
	}
	b, err = json.Marshal(&Problem{Code: "c", Message: "m", Hint: "h", File: "f", Line: 1, Column: 2, Field: "x", Rule: "r", Gate: "A", Host: "h1", Engine: "e", Evidence: "k"})
	for _, key := range []string{"code", "message", "hint", "file", "line", "column", "field", "rule", "gate", "host", "engine", "evidence"} {
		if err != nil || !strings.Contains(string(b), `"`+key+`":`) {
			t.Errorf("%s lacks %s (%v)", b, key, err)
		}
	}
}
