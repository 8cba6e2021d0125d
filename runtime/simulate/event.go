package simulate

import "container/heap"

// kind orders events of one moment.
type kind int

const (
	phaseEnd kind = iota // of an engine
	joinable             // a transfer ended
	arrival
	tick
)

type event struct {
	at     float64
	kind   kind
	seq    int
	engine *engine
	job    *job
}

// events is a heap by time, then kind, then order of entry.
type events struct {
	list []event
	seq  int
}

func (q *events) Len() int { return len(q.list) }
func (q *events) Less(i, j int) bool {
	a, b := &q.list[i], &q.list[j]
	if a.at != b.at {
		return a.at < b.at
	}
	if a.kind != b.kind {
		return a.kind < b.kind
	}
	return a.seq < b.seq
}
func (q *events) Swap(i, j int) { q.list[i], q.list[j] = q.list[j], q.list[i] }
func (q *events) Push(x any)    { q.list = append(q.list, x.(event)) }
func (q *events) Pop() any {
	n := len(q.list) - 1
	e := q.list[n]
	q.list = q.list[:n]
	return e
}

func (q *events) add(e event) {
	q.seq++
	e.seq = q.seq
	heap.Push(q, e)
}

func (q *events) next() event { return heap.Pop(q).(event) }

// advance starts what an idle engine does next.
func (q *events) advance(e *engine, now float64) {
	if e.busy != ahead {
		return
	}
	if until, ok := e.start(now); ok {
		q.add(event{at: until, kind: phaseEnd, engine: e})
	}
}
