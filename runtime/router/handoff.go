package router

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"slices"

	"github.com/narwhal-fleet/narwhal/internal/atomicfile"
	"github.com/narwhal-fleet/narwhal/runtime/model"
	"github.com/narwhal-fleet/narwhal/runtime/router/standby"
)

// maxLifecycleEvents is how many of the last lifecycle events are kept.
const maxLifecycleEvents = 200

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
		if n.hold != nil && n.hold.kind == holdInference {
			for s := range n.hold.sources {
				d.Sources[n.id] = append(d.Sources[n.id], s)
			}
			slices.Sort(d.Sources[n.id])
		}
		if n.state != stateActive {
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
	r := standby.Record{IID: n.id, State: n.state, Requested: o.unix(n.requested), Wave: o.wave, Error: n.fault, Checks: []string{}}
	if n.deadline > 0 {
		r.Deadline = ptr(o.unix(n.deadline))
	}
	if n.known {
		r.OldStart = ptr(n.facts.identity.ProcessStart)
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

func (r *Router) handoffDoc(w http.ResponseWriter, _ *http.Request) {
	var d standby.Document
	if !r.own.ask(beatLimit, func() { d = r.own.handoffState() }) {
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

// Apply restores another router's document: roles of engines without a pin, ejections,
// suspicions, counters and orders. On error nothing has changed.
func (r *Router) Apply(_ context.Context, d standby.Document) error {
	if err := d.Fits(engineIDs(r.own.nodes), r.set.Fleet.Recovery.EngineRestartPolicy); err != nil {
		return err
	}
	if d.Model != r.set.Fleet.Model {
		return fmt.Errorf("handoff is of model %q", d.Model)
	}
	if !r.own.do(func() { r.own.restore(d) }) {
		return errors.New("router has stopped")
	}
	return nil
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
		_, suspect := d.Sources[n.id]
		if slices.Contains(d.Ejected, n.id) || suspect {
			n.ejected = causeConnection
			if suspect {
				n.ejected = causeInference
			}
		}
	}
	for _, rec := range d.Lifecycle.Records {
		if n := o.node(rec.IID); n != nil && rec.State != stateActive {
			n.draining, n.state, n.fault = true, rec.State, rec.Error
			if rec.State == "validating" {
				n.state = stateBlocked
			}
			n.requested = rec.Requested - o.unix(0)
			if rec.Deadline != nil {
				n.deadline = *rec.Deadline - o.unix(0)
			}
		}
	}
	if d.Lifecycle.Wave != "" {
		o.wave, o.waveAt = d.Lifecycle.Wave, now
	}
	o.lifeEvents = slices.Clone(d.Lifecycle.Events)
	o.restoreCounters(d)
	o.publish()
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

// Store puts a document into this router's state file.
func (r *Router) Store(d standby.Document) error {
	if r.set.HA.StatePath == "" {
		return nil
	}
	b, err := d.Encode()
	if err != nil {
		return err
	}
	return atomicfile.Write(r.set.HA.StatePath, b, 0o600)
}

// saveState writes what this router would hand over. Only who controls the fleet writes.
func (r *Router) saveState() {
	if r.set.HA.StatePath == "" || !r.own.view.Load().controls() {
		return
	}
	var d standby.Document
	if !r.own.do(func() { d = r.own.handoffState() }) {
		return
	}
	if err := r.Store(d); err != nil {
		r.set.Logger.Error("write state", "error", err.Error())
	}
}

// resume restores the state file. A missing one is a first start; one of another fleet is
// passed over; one that cannot be read ends the start.
func (r *Router) resume() error {
	st, err := os.Stat(r.set.HA.StatePath)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && !st.Mode().IsRegular() {
		return fmt.Errorf("resume from %s: it is no regular file", r.set.HA.StatePath)
	}
	f, err := os.Open(r.set.HA.StatePath)
	if err != nil {
		return fmt.Errorf("resume: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, standby.MaxDocument+1))
	if err != nil {
		return fmt.Errorf("resume: %w", err)
	}
	d, err := standby.Decode(b)
	if err != nil {
		return fmt.Errorf("resume from %s: %w", r.set.HA.StatePath, err)
	}
	if err := r.Apply(context.Background(), d); err != nil {
		r.set.Logger.Warn("state is not of this fleet", "path", r.set.HA.StatePath, "error", err.Error())
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
	if err != nil {
		return
	}
	if len(o.lifeEvents) >= maxLifecycleEvents {
		o.lifeEvents = o.lifeEvents[1:]
	}
	o.lifeEvents = append(o.lifeEvents, raw)
}
