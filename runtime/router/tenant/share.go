package tenant

import "math"

// contend judges a request of a tenant that keeps its own limits by the seats of all.
//
// A tenant within its share is admitted whenever a seat is free. One above it is admitted
// if the free seats are more than what others, who hold less of their share, wanted lately:
// so a seat that comes free goes to them first, and to anybody once they are silent.
func (l *Limiter) contend(now float64, a *account) (wait float64, why Reason) {
	if l.total == 0 {
		return 0, Admitted
	}
	free := l.total - l.inflight
	if free <= 0 {
		a.miss(l.total)
		return soon(l.hold, l.inflight), Full
	}
	level := l.waterline(now, a)
	if a.inflight < share(level, a) || free > l.kept(now, a, level, free) {
		return 0, Admitted
	}
	a.miss(l.total)
	return soon(l.hold, a.inflight), Share
}

// waterline is how many seats one unit of weight is worth: total over the weights of the
// tenants with demand, after each whose share would be below one seat was given one. The
// tenants stand by ascending weight, so one walk settles it.
func (l *Limiter) waterline(now float64, asking *account) float64 {
	seats, weights := float64(l.total-l.draining), 0.0
	for _, b := range l.order {
		if b.roll(now); b == asking || b.want() > 0 {
			weights += b.t.Limits.Weight
		}
	}
	for _, b := range l.order {
		if b != asking && b.want() == 0 {
			continue
		}
		if w := b.t.Limits.Weight; seats*w < weights {
			seats, weights = seats-1, weights-w
			continue
		}
		break
	}
	if seats <= 0 || weights <= 0 {
		return 0
	}
	return seats / weights
}

// share is the number of seats that a tenant may count on; at least one.
func share(waterline float64, a *account) int {
	return max(1, int(math.Floor(waterline*a.t.Limits.Weight*(1+rounding))))
}

// rounding covers the error of a few operations on floats.
const rounding = 1e-9

// kept is how many free seats are kept from a tenant above its share: what each other one
// wants of its share, or beyond it of seats that leave it with less for its weight than
// the asking one would have. Counting stops at most.
//
// It is 0 for the tenant above its share whose next seat is the cheapest for its weight
// among those that want one, so no seat stays free while somebody keeps asking.
func (l *Limiter) kept(now float64, a *account, waterline float64, most int) int {
	kept := 0
	each := float64(a.inflight+1) / a.t.Limits.Weight
	for _, b := range l.order {
		if b == a {
			continue
		}
		unmet := b.unmet(now)
		if unmet <= 0 {
			continue
		}
		entitled := max(share(waterline, b), int(math.Ceil(each*b.t.Limits.Weight*(1-rounding)))-1)
		if kept += min(unmet, max(0, entitled-b.inflight)); kept >= most {
			return kept
		}
	}
	return kept
}
