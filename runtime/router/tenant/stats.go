package tenant

import (
	"cmp"
	"slices"
)

// RemovedName is the row of Stats for tenants that are no more, all in one.
const RemovedName = "_removed"

// Stats is a snapshot of one tenant.
type Stats struct {
	Tenant      string
	Weight      float64
	Inflight    int
	MaxInflight int // 0 = no limit
	// Share is the seats that the tenant may count on beside who else has demand now; 0
	// where the router has no limit.
	Share int
	// Want is the most seats that ran or were asked for at once in the last seconds.
	Want int
	// Bucket is the tokens in the bucket, negative while the tenant owes some. Without
	// TokensPerS it says nothing.
	Bucket, TokensPerS float64
	// Admitted − Finished = Inflight.
	Admitted, Finished uint64
	// Charged is the tokens that admitted requests asked for, Used what finished ones took.
	Charged, Used float64
	refused       [reasons]uint64
}

// Refused is how often the limiter turned the tenant away for a reason, by Admit or Charge.
func (s Stats) Refused(r Reason) uint64 {
	if r >= reasons {
		return 0
	}
	return s.refused[r]
}

// Stats returns a row for each tenant of the table in force, by name, and RemovedName last:
// at most MaxTenants+2 rows, whatever was reloaded.
func (l *Limiter) Stats(now float64) []Stats {
	now = l.tick(now)
	out := make([]Stats, 0, len(l.order)+1)
	for _, a := range l.order {
		a.fill(now)
		s := statsOf(a.t.Name, a.n)
		// The waterline asks for a share beside those with demand, whether a has any or not.
		if l.total > 0 {
			s.Share = min(l.total, share(l.waterline(now, a), a))
		}
		s.Weight, s.Inflight, s.MaxInflight, s.Want = a.t.Limits.Weight, a.inflight, a.t.Limits.MaxInflight, a.want()
		s.Bucket, s.TokensPerS = a.level, a.t.Limits.TokensPerS
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b Stats) int { return cmp.Compare(a.Tenant, b.Tenant) })
	gone := l.removed
	for _, a := range l.byName {
		if !a.live {
			gone.add(a.n)
		}
	}
	last := statsOf(RemovedName, gone)
	last.Inflight = l.draining
	return append(out, last)
}

func statsOf(name string, n counters) Stats {
	return Stats{Tenant: name, Admitted: n.admitted, Finished: n.finished, Charged: n.charged, Used: n.used, refused: n.refused}
}

// Inflight is how many seats are taken, of all tenants.
func (l *Limiter) Inflight() int { return l.inflight }
