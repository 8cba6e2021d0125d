package tenant

import (
	"errors"
	"sync/atomic"
)

// Set is the table in force. Any goroutine may use it.
type Set struct {
	table   atomic.Pointer[Table]
	refused [reasons]atomic.Uint64
}

// NewSet puts a table in force; nil is Open.
func NewSet(t *Table) *Set {
	s := &Set{}
	s.Publish(t)
	return s
}

// Publish puts another table in force; nil is Open. Hand it to the limiter first
// (Limiter.Use), or a new tenant is turned away until then.
func (s *Set) Publish(t *Table) {
	if t == nil {
		t = Open()
	}
	s.table.Store(t)
}

// Table returns the table in force.
func (s *Set) Table() *Table { return s.table.Load() }

// Find is Table.Find on the table in force, counted.
func (s *Set) Find(authorization, apiKey string) (*Tenant, error) {
	t, err := s.Table().Find(authorization, apiKey)
	if err != nil {
		s.count(err)
	}
	return t, err
}

func (s *Set) count(err error) {
	var e *UnauthorizedError
	if errors.As(err, &e) {
		s.refused[e.Why].Add(1)
	}
}

// FindIn is Find on a request's headers, under their canonical names. A header that is
// given twice is malformed.
func (s *Set) FindIn(header map[string][]string) (*Tenant, error) {
	authorization, apiKey, ok := headers(header)
	if !ok && !s.Table().open {
		s.refused[BadKey].Add(1)
		return nil, unauthorized[BadKey]
	}
	return s.Find(authorization, apiKey)
}

// Unauthorized returns how many clients Find turned away, by reason.
func (s *Set) Unauthorized() map[Reason]uint64 {
	out := map[Reason]uint64{}
	for _, r := range []Reason{NoKey, BadKey, UnknownKey} {
		out[r] = s.refused[r].Load()
	}
	return out
}
