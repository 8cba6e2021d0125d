package ownfile

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

var mine = Kind{Name: "a note of mine", Most: 16, Is: func(head []byte, _ bool) bool { return bytes.HasPrefix(head, []byte("mine")) }}

func put(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func link(t *testing.T, to, path string) string {
	t.Helper()
	if err := os.Symlink(to, path); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestCheck(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := syscall.Mkfifo(at("pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		path string
		want error
	}{
		"absent":               {at("absent"), nil},
		"absent folder":        {at("no/such/file"), nil},
		"empty":                {put(t, at("empty"), ""), nil},
		"mine":                 {put(t, at("mine"), "mine, and more than the head shows"), nil},
		"foreign":              {put(t, at("notes"), "important"), ErrForeign},
		"link to mine":         {link(t, "mine", at("l1")), nil},
		"link to foreign":      {link(t, "notes", at("l2")), ErrForeign},
		"link to nothing":      {link(t, "nothing", at("l3")), nil},
		"pipe":                 {at("pipe"), ErrIrregular},
		"link to a pipe":       {link(t, "pipe", at("l4")), ErrIrregular},
		"folder":               {dir, ErrIrregular},
		"link that goes round": {link(t, "l5", at("l5")), syscall.ELOOP},
	} {
		if err := Check(c.path, mine); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

func TestDistinct(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	a := put(t, at("a"), "x")
	link(t, "a", at("to-a"))
	link(t, "later", at("to-later"))
	link(t, ".", at("here"))
	if err := os.Link(a, at("hard")); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		one, two string
		same     bool
	}{
		"one path":          {a, a, true},
		"dots":              {a, dir + "/./x/../a", true},
		"link":              {at("to-a"), a, true},
		"link to an absent": {at("to-later"), at("later"), true},
		"folder is a link":  {at("here/new"), at("new"), true},
		"hard link":         {a, at("hard"), true},
		"others":            {a, at("b"), false},
		"absent folders":    {at("no/such/f"), at("no/such/g"), false},
	} {
		err := Distinct([]Use{{"the one", c.one, false}, {"the other", c.two, true}})
		var clash *ClashError
		if errors.As(err, &clash) != c.same {
			t.Errorf("%s: %v", name, err)
		}
		if err := Distinct([]Use{{"the one", c.one, false}, {"the other", c.two, false}}); err != nil {
			t.Errorf("%s, both read: %v", name, err)
		}
	}
}
