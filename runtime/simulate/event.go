package simulate

// agenda is a heap of engines by the time of their next event, then by index.
type agenda struct{ list []*engine }

func (a *agenda) add(e *engine) {
	e.at = len(a.list)
	a.list = append(a.list, e)
	a.up(e.at)
}

// first is the engine whose event comes next.
func (a *agenda) first() *engine { return a.list[0] }

// fix restores the order after an engine's next event moved.
func (a *agenda) fix(e *engine) {
	if !a.up(e.at) {
		a.down(e.at)
	}
}

func (a *agenda) before(i, j int) bool {
	x, y := a.list[i], a.list[j]
	if x.next != y.next {
		return x.next < y.next
	}
	return x.index < y.index
}

func (a *agenda) swap(i, j int) {
	a.list[i], a.list[j] = a.list[j], a.list[i]
	a.list[i].at, a.list[j].at = i, j
}

func (a *agenda) up(i int) (moved bool) {
	for i > 0 && a.before(i, (i-1)/2) {
		a.swap(i, (i-1)/2)
		i, moved = (i-1)/2, true
	}
	return moved
}

func (a *agenda) down(i int) {
	for {
		c := 2*i + 1
		if c >= len(a.list) {
			return
		}
		if c+1 < len(a.list) && a.before(c+1, c) {
			c++
		}
		if !a.before(c, i) {
			return
		}
		a.swap(c, i)
		i = c
	}
}
