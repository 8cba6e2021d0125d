package router

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/narwhal-fleet/narwhal/internal/atomicfile"
	"github.com/narwhal-fleet/narwhal/runtime/model"
	"github.com/narwhal-fleet/narwhal/runtime/router/standby"
)

// maxLifecycleEvents is how many of the last lifecycle events are kept.
const maxLifecycleEvents = 200

// maxLifecycleEvent bounds one of them in the handoff document, in bytes.
const maxLifecycleEvent = 4000

// handoffState is what another router needs to go on.
func (o *owner) handoffState() standby.Document {
	d := standby.NewDocument()
	d.At, d.Run, d.Model = o.unix(o.now()), o.run, o.set.Fleet.Model
	d.Epoch, d.Holder = o.view.Load().term()
	for _, n := range o.nodes {
		d.Engines = append(d.Engines, n.id)
		d.Roles[n.id] = string(n.role)
		if n.ejected != "" {
			d.Ejected = append(d.Ejected, n.id)
		}
		if n.known {
			d.Lifecycle.Starts[n.id] = n.facts.identity.ProcessStart
		}
		if n.hold != nil && n.hold.kind == holdInference || n.ejected == causeInference {
			d.Sources[n.id] = append([]string{}, slices.Sorted(maps.Keys(n.sources))...)
		}
		if n.state != stateActive || n.requested > 0 {
			d.Lifecycle.Records = append(d.Lifecycle.Records, o.recordOf(n))
		}
	}
	slices.Sort(d.Engines)
	slices.Sort(d.Ejected)
	n := &o.n
	d.Counters = standby.Counters{Offered: int64(n.offered), Unsized: int64(n.unsized), Served: int64(n.served), SLOMet: int64(n.sloMet), Expired: int64(sum(n.expired)),
		Invalid: int64(n.invalid), Failed: int64(sum(n.failed)), Refused: int64(sum(n.refused)), Rejected: int64(sum(n.rejected)), Cancelled: int64(n.cancelled), Unserved: int64(n.unserved)}
	d.Reasons = standby.Reasons{Failed: counted(n.failed), Rejected: counted(n.rejected), Expired: counted(n.expired), Refused: counted(n.refused)}
	d.Lifecycle.Wave, d.Lifecycle.Policy = o.wave, o.set.Fleet.Recovery.EngineRestartPolicy
	d.Lifecycle.Events = append(d.Lifecycle.Events, o.lifeEvents...)
	return d
}

func (o *owner) recordOf(n *node) standby.Record {
	r := standby.Record{IID: n.id, State: n.state, Requested: o.unix(n.requested), Restart: n.restart, Wave: n.record.wave, OldStart: n.oldStart, NewStart: n.newStart,
		Error: n.fault, Checks: append([]string{}, n.checks...)}
	if n.deadline > 0 {
		r.Deadline = ptr(o.unix(n.deadline))
	}
	return r
}

func counted(m map[model.Reason]int) map[string]int64 {
	out := map[string]int64{}
	for k, v := range m {
		out[string(k)] = int64(v)
	}
	return out
}

// followed is what a standby was last told by the router that it follows.
type followed struct {
	standby.Document
	at time.Time // when that router was well
}

// handoffDoc is this router's own document, or the one that it follows as a standby.
func (r *Router) handoffDoc(w http.ResponseWriter, q *http.Request) {
	r.followers.note(q.Header.Get(standby.KeptHeader))
	var d standby.Document
	if f := r.follows.Load(); f != nil && r.own.view.Load().waits {
		d = f.Document
		w.Header().Set(standby.AgeHeader, fmt.Sprintf("%.3f", max(0, time.Since(f.at).Seconds())))
	} else if !r.own.ask(beatLimit, func() { d = r.own.handoffState() }) {
		writeJSON(w, http.StatusServiceUnavailable, map[string]string{"detail": "Router has stopped or does not answer itself"})
		return
	}
	b, err := d.Encode()
	if err != nil {
		writeJSON(w, http.StatusInternalServerError, map[string]string{"detail": err.Error()})
		return
	}
	writeBody(w, http.StatusOK, b)
}

// Fits says why a document is of another fleet, nil if it is of this one.
func (r *Router) Fits(d standby.Document) error {
	if d.Model != r.set.Fleet.Model {
		return fmt.Errorf("handoff is of model %q, this fleet's is %q", d.Model, r.set.Fleet.Model)
	}
	return d.Fits(engineIDs(r.own.nodes), r.set.Fleet.Recovery.EngineRestartPolicy)
}

// Apply restores another router's document: roles of engines without a pin, ejections,
// suspicions, counters and orders. On error nothing has changed.
func (r *Router) Apply(_ context.Context, d standby.Document) error {
	if err := r.Fits(d); err != nil {
		return err
	}
	if iid := r.set.unstarted(d); iid != "" {
		return fmt.Errorf("handoff names no process start of engine %s, which serves", iid)
	}
	if !r.own.do(func() { r.own.restore(d) }) {
		return errors.New("router has stopped")
	}
	return nil
}

// unstarted is an engine of a contracted fleet that serves by a document which does not say
// as which process; "" for none.
func (s *settings) unstarted(d standby.Document) string {
	if !s.contracted() {
		return ""
	}
	for _, iid := range d.Engines {
		_, told := d.Lifecycle.Starts[iid]
		held := slices.ContainsFunc(d.Lifecycle.Records, func(r standby.Record) bool { return r.IID == iid && r.State != stateActive })
		if !told && !held && !slices.Contains(d.Ejected, iid) {
			return iid
		}
	}
	return ""
}

func engineIDs(nodes []*node) (list []string) {
	for _, n := range nodes {
		list = append(list, n.id)
	}
	return list
}

func (o *owner) restore(d standby.Document) {
	now := o.now()
	for _, n := range o.nodes {
		if role := model.Role(d.Roles[n.id]); !n.pinned && (role == model.Prefill || role == model.Decode) && n.role != role {
			n.role, n.roleSince = role, now
		}
		n.expected = nil
		if at, told := d.Lifecycle.Starts[n.id]; told {
			n.expected = ptr(at)
		}
		if slices.Contains(d.Ejected, n.id) {
			n.ejected = causeConnection
		}
	}
	for _, rec := range d.Lifecycle.Records {
		if n := o.node(rec.IID); n != nil {
			n.draining, n.state, n.fault = rec.State != stateActive, rec.State, rec.Error
			if rec.State == stateValidating {
				n.state, n.fault = stateBlocked, interrupted
			}
			n.record = record{wave: rec.Wave, oldStart: rec.OldStart, newStart: rec.NewStart, checks: slices.Clone(rec.Checks), restart: rec.Restart}
			n.requested = rec.Requested - o.unix(0)
			if rec.Deadline != nil {
				n.deadline = *rec.Deadline - o.unix(0)
			}
		}
	}
	if d.Lifecycle.Wave != "" {
		o.wave = d.Lifecycle.Wave
	}
	o.restoreSuspects(d) // who is covered depends on who is held
	o.lifeEvents = slices.Clone(d.Lifecycle.Events)
	o.restoreCounters(d)
	o.publish()
}

// restoreSuspects takes suspicions over. A suspect that the others cover is out until its
// probe, which is due now.
func (o *owner) restoreSuspects(d standby.Document) {
	for _, n := range o.nodes {
		list, suspect := d.Sources[n.id]
		if !suspect {
			continue
		}
		clear(n.sources)
		for _, s := range list {
			n.suspect(s)
		}
		if n.ejected != "" || o.covered(n) {
			n.ejected = causeInference
		}
	}
}

func (o *owner) restoreCounters(d standby.Document) {
	n, c := &o.n, d.Counters
	n.offered, n.unsized, n.served, n.sloMet = int(c.Offered), int(c.Unsized), int(c.Served), int(c.SLOMet)
	n.invalid, n.cancelled, n.unserved = int(c.Invalid), int(c.Cancelled), int(c.Unserved)
	for _, x := range []struct {
		to    map[model.Reason]int
		from  map[string]int64
		total int64
	}{{n.failed, d.Reasons.Failed, c.Failed}, {n.rejected, d.Reasons.Rejected, c.Rejected}, {n.expired, d.Reasons.Expired, c.Expired}, {n.refused, d.Reasons.Refused, c.Refused}} {
		rest := x.total
		for k := range x.to {
			x.to[k] = 0
		}
		for k, v := range x.from {
			x.to[model.Reason(k)] = int(v)
			rest -= v
		}
		if rest > 0 {
			x.to["unclassified"] += int(rest)
		}
	}
}

// Store keeps the document of the router that this one follows, which was well then.
func (r *Router) Store(d standby.Document, at time.Time) error {
	r.follows.Store(&followed{d, at})
	r.stateMu.Lock()
	defer r.stateMu.Unlock()
	return r.write(d)
}

// write puts a document into this router's state file. It logs where failures begin and end.
func (r *Router) write(d standby.Document) error {
	if r.set.HA.StatePath == "" {
		return nil
	}
	b, err := d.Encode()
	if err == nil {
		err = atomicfile.Write(r.set.HA.StatePath, b, 0o600)
	}
	switch failed := err != nil; {
	case r.stateFails.Swap(failed) == failed:
	case failed:
		r.set.Logger.Error("state cannot be written", "path", r.set.HA.StatePath, "error", err.Error())
	default:
		r.set.Logger.Warn("state is written again", "path", r.set.HA.StatePath)
	}
	return err
}

// saveState writes what this router would hand over, and reports whether the file has it. Only who
// controls the fleet writes. An older document never replaces a newer one.
func (r *Router) saveState() bool {
	if r.set.HA.StatePath == "" || !r.own.view.Load().controls() {
		return false
	}
	r.stateMu.Lock()
	defer r.stateMu.Unlock()
	var d standby.Document
	return r.own.do(func() { d = r.own.handoffState() }) && r.write(d) == nil
}

// ErrResume: the state file cannot be read.
var ErrResume = errors.New("the state file cannot be restored")

// resume restores the state file. A missing or empty one is a first start; one of another fleet
// is passed over; one that cannot be read ends the start with ErrResume.
func (r *Router) resume() error {
	if err := r.restore(); err != nil {
		return fmt.Errorf("%w: %w", ErrResume, err)
	}
	return nil
}

func (r *Router) restore() error {
	st, err := os.Stat(r.set.HA.StatePath)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && st.Mode().IsRegular() && st.Size() == 0 {
		r.set.Logger.Warn("state file is empty: roles, holds and counters begin anew", "path", r.set.HA.StatePath)
		return nil
	}
	if err == nil && !st.Mode().IsRegular() {
		return fmt.Errorf("%s: it is no regular file", r.set.HA.StatePath)
	}
	f, err := os.Open(r.set.HA.StatePath)
	if err != nil {
		return err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, standby.MaxDocument+1))
	if err != nil {
		return err
	}
	d, err := standby.Decode(b)
	if err != nil {
		return fmt.Errorf("%s: %w", r.set.HA.StatePath, err)
	}
	if err := r.Apply(context.Background(), d); err != nil {
		aside := r.set.HA.StatePath + ".rejected"
		r.set.Logger.Warn("state is not of this fleet: it is kept aside", "path", r.set.HA.StatePath, "kept", aside, "error", err.Error())
		if err := atomicfile.Write(aside, b, 0o600); err != nil {
			return err
		}
		if r.set.contracted() {
			// Which processes served is not known: all must be new ones.
			r.own.do(func() { r.own.required = "state file was rejected" })
		}
	}
	return nil
}

// rememberLifecycle keeps the last lifecycle events.
func (o *owner) rememberLifecycle(wall float64, fields map[string]any) {
	e := map[string]any{"event": "engine_lifecycle", "at": wall}
	for k, v := range fields {
		e[k] = v
	}
	raw, err := json.Marshal(e)
	if len(raw) > maxLifecycleEvent {
		delete(e, "engines") // all of a large fleet: the document must stay readable
		raw, err = json.Marshal(e)
	}
	if err != nil {
		return
	}
	if len(o.lifeEvents) >= maxLifecycleEvents {
		o.lifeEvents = o.lifeEvents[1:]
	}
	o.lifeEvents = append(o.lifeEvents, raw)
}
