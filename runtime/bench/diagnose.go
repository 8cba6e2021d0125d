package bench

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/narwhal-fleet/narwhal/runtime/journal"
)

// sampleGap is how many intervals two looks may lie apart.
const sampleGap = 2.5

// Diagnose compares client rows, journal and counters of a run. What could not be compared
// for want of evidence is told apart: it is no agreement.
func (f *Folder) Diagnose() (out []Finding, unchecked []string) {
	run := &findings{}
	if f.warmupBad > 0 {
		run.add("warmup_parse_error", "", f.warmupBad)
	}
	if n := len(f.changed); n > 0 {
		run.add("evidence_changed", "", n, f.changed...)
	}
	for _, in := range f.Manifest.Inputs {
		if in.After != "" && in.After != in.SHA256 {
			run.add("input_changed", in.Path, 1)
		}
	}
	out = run.out
	for i := range f.Points {
		p := &f.Points[i]
		d := &findings{point: p.Info.Label}
		p.diagnose(d)
		out = append(out, d.out...)
		if p.journal == nil {
			unchecked = append(unchecked, p.Info.Label+": no journal was kept, so client rows stand alone (give --journal)")
		}
		if len(p.samples) == 0 {
			unchecked = append(unchecked, p.Info.Label+": no counters were read")
		}
	}
	return out, unchecked
}

func (p *PointData) diagnose(d *findings) {
	switch {
	case p.noRows && p.State != StateRunning:
		d.add("client_records_missing", "", 1)
	case p.rowsBad > 0:
		d.add("client_parse_error", "", p.rowsBad)
	}
	for when, idle := range map[string]*bool{"before": p.Info.IdleBefore, "after": p.Info.IdleAfter} {
		if idle != nil && !*idle {
			d.add("not_idle", when, 1)
		}
	}
	switch p.Info.JournalError {
	case "":
	case "replaced":
		d.add("journal_replaced", "", 1)
	case "truncated":
		d.add("journal_truncated", "", 1)
	default:
		d.add("journal_parse_error", p.Info.JournalError, 1)
	}
	if p.journalBad > 0 || p.journalErr != "" {
		d.add("journal_parse_error", p.journalErr, max(1, p.journalBad))
	}
	p.diagnoseSamples(d)
	if p.journal != nil && !p.noRows {
		p.diagnoseRows(d)
		p.diagnoseCounters(d)
	}
}

// diagnoseRows compares client and journal. Rows with a client id of somebody else are left
// alone.
func (p *PointData) diagnoseRows(d *findings) {
	prefix := p.Info.Tag + "-"
	ours, nameless, times := map[string]*journal.Row{}, 0, map[string]int{}
	terminals, completed := 0, 0
	for i := range p.journal {
		e := &p.journal[i]
		switch {
		case e.ClientRID == nil || *e.ClientRID == "":
			nameless++
		case strings.HasPrefix(*e.ClientRID, prefix):
			ours[*e.ClientRID] = e
			times[*e.ClientRID]++
			terminals++
			if e.Terminal == journal.Completed {
				completed++
			}
		}
	}
	sent, done := 0, 0
	var odd, differ []string
	for _, r := range p.Rows {
		if r.Completed {
			done++
		}
		e := ours[r.ClientRID]
		if !r.Sent {
			continue
		}
		sent++
		if e == nil {
			odd = append(odd, r.ClientRID+" is not in the journal")
			continue
		}
		for _, m := range compare(r, e) {
			differ = append(differ, fmt.Sprintf("%s: %s: client %s, journal %s", m.ClientRID, m.What, m.Client, m.Journal))
		}
		delete(ours, r.ClientRID)
	}
	for _, id := range slices.Sorted(maps.Keys(ours)) {
		odd = append(odd, short(id)+" is not at the client")
	}
	for _, id := range slices.Sorted(maps.Keys(times)) {
		if times[id] > 1 {
			odd = append(odd, fmt.Sprintf("%s stands %d times in the journal", short(id), times[id]))
		}
	}
	if sent != terminals {
		d.add("client_journal_count", fmt.Sprintf("%d sent, %d ended", sent, terminals), 1)
	}
	if done != completed {
		d.add("completed_count", fmt.Sprintf("client %d, journal %d", done, completed), 1)
	}
	if len(odd) > 0 {
		d.add("client_journal_ids", "", len(odd), odd...)
	}
	if nameless > 0 {
		d.add("journal_client_ids_missing", "", nameless)
	}
	if len(differ) > 0 {
		d.add("request_mismatch", "", len(differ), differ...)
	}
}

// span is the first and the last look at one process.
type span struct {
	first, last Sample
	n           int
}

func (p *PointData) spans() map[string]span {
	out := map[string]span{}
	for _, s := range p.samples {
		if s.Error != "" || s.Run == "" {
			continue
		}
		v := out[s.Run]
		if v.n == 0 {
			v.first = s
		}
		v.last, v.n = s, v.n+1
		out[s.Run] = v
	}
	return out
}

// earlier reports a request of this run that ended before the point: its row may reach the
// journal after the point has begun, its counters were seen before.
func (p *PointData) earlier(id *string) bool {
	if id == nil || strings.HasPrefix(*id, p.Info.Tag+"-") {
		return false
	}
	run, _, ok := strings.Cut(p.Info.Tag, "-")
	return ok && run != "" && strings.HasPrefix(*id, run+"-")
}

// diagnoseCounters compares the journal's ends with what each process counted.
func (p *PointData) diagnoseCounters(d *findings) {
	spans := p.spans()
	if len(p.samples) == 0 {
		return
	}
	ends := map[string]map[string]int{}
	for _, e := range p.journal {
		if p.earlier(e.ClientRID) {
			continue
		}
		if ends[e.Run] == nil {
			ends[e.Run] = map[string]int{}
		}
		ends[e.Run][e.Terminal]++
		ends[e.Run][""]++
	}
	for _, run := range slices.Sorted(maps.Keys(ends)) {
		s, ok := spans[run]
		if !ok {
			d.add("missing_run_metrics", "process "+short(run), ends[run][""])
			continue
		}
		var off []string
		for _, c := range outcomeCounters {
			was, known := s.first.Counters[c.Name]
			is, still := s.last.Counters[c.Name]
			if grew := is - was; known && still && grew != float64(ends[run][c.Terminal]) {
				off = append(off, fmt.Sprintf("%s grew by %g, the journal has %d", c.Name, grew, ends[run][c.Terminal]))
			}
		}
		if len(off) > 0 {
			d.add("counter_mismatch", "", len(off), off...)
		}
	}
	moved := 0.0
	for _, s := range spans {
		moved += s.last.Counters[movesCounter] - s.first.Counters[movesCounter]
	}
	if moved > float64(p.moves) {
		d.add("role_history_gap", fmt.Sprintf("%g counted, %d told", moved, p.moves), 1)
	}
}

// diagnoseSamples looks at the samples alone.
func (p *PointData) diagnoseSamples(d *findings) {
	if len(p.samples) == 0 {
		if p.samplesBad > 0 {
			d.add("scrape_error", "no sample can be read", p.samplesBad)
		}
		return
	}
	var failed, gaps, less, missing []string
	var last, first *Sample
	for i := range p.samples {
		s := &p.samples[i]
		if i > 0 && p.Info.SampleEveryS > 0 {
			if apart := s.At.Sub(p.samples[i-1].At).Seconds(); apart > sampleGap*p.Info.SampleEveryS {
				gaps = append(gaps, fmt.Sprintf("%.1f s before %s", apart, s.At.Format("15:04:05.000")))
			}
		}
		if s.Error != "" {
			failed = append(failed, short(s.Error))
			continue
		}
		if last != nil {
			for _, name := range slices.Sorted(maps.Keys(s.Counters)) {
				if was, ok := last.Counters[name]; ok && s.Counters[name] < was {
					less = append(less, fmt.Sprintf("%s from %g to %g", short(name), was, s.Counters[name]))
				}
			}
		} else {
			first = s
		}
		last = s
	}
	if first != nil {
		both := map[string]int{}
		for _, m := range []map[string]float64{first.Counters, last.Counters} {
			for name := range m {
				both[name]++
			}
		}
		for _, name := range slices.Sorted(maps.Keys(both)) {
			if both[name] == 1 && first != last {
				missing = append(missing, short(name))
			}
		}
	}
	if n := len(failed) + p.samplesBad; n > 0 {
		d.add("scrape_error", "", n, failed...)
	}
	for _, x := range []struct {
		code string
		seen []string
	}{{"scrape_interval_gap", gaps}, {"counter_missing", missing}, {"counter_reset", less}} {
		if len(x.seen) > 0 {
			d.add(x.code, "", len(x.seen), x.seen...)
		}
	}
}
