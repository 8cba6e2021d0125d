package fleet

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Duration marshals as Go's duration text ("300ms", "2m").
type Duration time.Duration

// D returns d as a time.Duration.
func (d Duration) D() time.Duration { return time.Duration(d) }

func (d Duration) String() string { return time.Duration(d).String() }

// MarshalJSON writes the duration as text.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(d.String()) }

// UnmarshalJSON reads duration text.
func (d *Duration) UnmarshalJSON(b []byte) error {
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return fmt.Errorf("read duration: %w", err)
	}
	v, err := time.ParseDuration(s)
	if err != nil {
		return fmt.Errorf("read duration %q: want a form like 300ms or 2m", s)
	}
	*d = Duration(v)
	return nil
}

// Size is a number of bytes that marshals as text ("8MiB").
type Size int64

var sizeUnits = []struct {
	name  string
	bytes int64
}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}

// ParseSize reads "8MiB", "512KiB" or "100B".
func ParseSize(s string) (Size, error) {
	for _, u := range sizeUnits {
		digits, ok := strings.CutSuffix(s, u.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(digits, 10, 64)
		if err != nil || n < 0 || n > (1<<62)/u.bytes {
			break
		}
		return Size(n * u.bytes), nil
	}
	return 0, fmt.Errorf("read size %q: want a form like 8MiB", s)
}

func (s Size) String() string {
	for _, u := range sizeUnits {
		if int64(s) >= u.bytes && int64(s)%u.bytes == 0 {
			return fmt.Sprintf("%d%s", int64(s)/u.bytes, u.name)
		}
	}
	return fmt.Sprintf("%dB", int64(s))
}

// MarshalJSON writes the size as text.
func (s Size) MarshalJSON() ([]byte, error) { return json.Marshal(s.String()) }

// UnmarshalJSON reads size text.
func (s *Size) UnmarshalJSON(b []byte) error {
	var t string
	if err := json.Unmarshal(b, &t); err != nil {
		return fmt.Errorf("read size: %w", err)
	}
	v, err := ParseSize(t)
	*s = v
	return err
}

// SecretRef names where a secret lives: "env:NAME" or "file:PATH". It never holds the secret.
type SecretRef string

// Split returns the scheme ("env" or "file") and the name.
func (r SecretRef) Split() (scheme, name string, ok bool) {
	scheme, name, ok = strings.Cut(string(r), ":")
	return scheme, name, ok && name != "" && (scheme == "env" || scheme == "file")
}

// Secret is a value that formats as a mask everywhere; Reveal gives the bytes. It holds a
// pointer, since fmt cannot call methods of unexported fields and prints those as they are.
type Secret struct{ value *string }

// NewSecret wraps a value.
func NewSecret(v string) Secret { return Secret{&v} }

// Reveal returns the value. Callers hand it to the one place that needs it.
func (s Secret) Reveal() string {
	if s.value == nil {
		return ""
	}
	return *s.value
}

// Empty reports whether there is no value.
func (s Secret) Empty() bool { return s.value == nil || *s.value == "" }

const mask = "********"

func (s Secret) String() string               { return mask }
func (s Secret) GoString() string             { return mask }
func (s Secret) Format(f fmt.State, _ rune)   { _, _ = f.Write([]byte(mask)) }
func (s Secret) MarshalJSON() ([]byte, error) { return []byte(`"` + mask + `"`), nil }
func (s Secret) MarshalText() ([]byte, error) { return []byte(mask), nil }
