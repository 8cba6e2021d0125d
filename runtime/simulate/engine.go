package simulate

// place says where a request is.
type place int

const (
	ahead      place = iota // not arrived
	refused                 // turned away
	prefilling              // queued or in prefill
	joining                 // dispatched for decode, not in the batch
	running                 // in the batch
	done
)

// job is one request.
type job struct {
	id            string
	at            float64 // arrival
	input, output int
	scored        bool

	place       place
	p, d        *engine
	own, queue  float64 // predicted prefill, and the wait before it
	placed      float64 // when it was placed
	ready       float64 // when it may join
	made        int     // tokens
	prefilled   float64
	first, last float64 // tokens
}

// engine is one modelled engine: one prefill or one decode step at a time, prefills first.
type engine struct {
	model *Model
	slow  float64
	index int
	ledger

	prefills []*job // queue; the first is in work when busy is prefilling
	join     []*job // in order of dispatch
	batch    []*job
	held     int   // Σ(input + output) of the batch
	tokens   int   // Σ tokens that the batch holds
	busy     place // prefilling, running, or ahead: idle
}

func (e *engine) addPrefill(j *job) {
	j.place = prefilling
	e.prefills = append(e.prefills, j)
}

func (e *engine) addDecode(j *job, now float64) {
	j.place, j.ready = joining, now+e.model.transfer(j.input)
	e.join = append(e.join, j)
}

// start begins what is next at a boundary and returns its end; false when idle.
func (e *engine) start(now float64) (until float64, ok bool) {
	if len(e.prefills) > 0 {
		e.busy = prefilling
		return now + e.model.prefill(e.prefills[0].input, e.slow), true
	}
	for len(e.join) > 0 && e.fits(e.join[0], now) {
		j := e.join[0]
		e.join = e.join[1:]
		j.place = running
		e.batch = append(e.batch, j)
		e.held += j.input + j.output
		e.tokens += j.input
	}
	if len(e.batch) == 0 {
		e.busy = ahead
		return 0, false
	}
	e.busy = running
	return now + e.model.step(len(e.batch), e.tokens, e.slow), true
}

func (e *engine) fits(j *job, now float64) bool {
	return j.ready <= now && len(e.batch) < e.model.MaxRunning && e.held+j.input+j.output <= e.model.KVTokens
}

// finish ends what is in work. It returns the request that was prefilled, those that got
// their first token, and those that left; the slices are the caller's.
func (e *engine) finish(now float64) (ended *job, firsts, left []*job) {
	if e.busy == prefilling {
		j := e.prefills[0]
		e.prefills = e.prefills[1:]
		j.prefilled = now
		e.busy = ahead
		return j, nil, nil
	}
	e.busy = ahead
	stay := e.batch[:0]
	for _, j := range e.batch {
		j.made++
		e.tokens++
		j.last = now
		if j.made == 1 {
			j.first = now
			firsts = append(firsts, j)
		}
		if j.made < j.output {
			stay = append(stay, j)
			continue
		}
		e.held -= j.input + j.output
		e.tokens -= j.input + j.made
		left = append(left, j)
	}
	clear(e.batch[len(stay):])
	e.batch = stay
	return nil, firsts, left
}
