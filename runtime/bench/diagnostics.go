package bench

// Diagnostic is one way in which a run's evidence can disagree with itself.
type Diagnostic struct {
	Code  string
	Means string
	Do    string
	Ours  bool // not among the reference's
}

// Diagnostics is the whole table: four comparisons, then the named conditions.
func Diagnostics() []Diagnostic {
	return []Diagnostic{
		{Code: "client_journal_count", Means: "the client sent another number of requests than the journal has ends for", Do: "see whether requests were lost on the way (a proxy, a restart of the router), and repeat the run"},
		{Code: "completed_count", Means: "client and journal count completed requests differently", Do: "compare the rows that it names; a stream that broke behind the router is completed for one side only"},
		{Code: "client_journal_ids", Means: "the request ids of client and journal are not the same set, or one stands twice", Do: "make sure that --journal is the journal of the router behind --url, and that no proxy repeats requests"},
		{Code: "counter_mismatch", Means: "the journal's ends of a class are not what the router's counter of that class grew by", Do: "repeat the run on a router that is idle before and after; if it stays, the journal dropped rows (its event journal_dropped tells)"},
		{Code: "journal_client_ids_missing", Means: "journal rows have no client id, so somebody else sent requests or a proxy took the header away", Do: "keep other clients away for the run, or let the proxy pass X-Request-Id on"},
		{Code: "missing_run_metrics", Means: "the journal has rows of a router process of which no counters were seen", Do: "take samples more often (--sample-every); the router was started anew within the run"},
		{Code: "role_history_gap", Means: "the router counted more role moves than its journal tells", Do: "look for journal_dropped in the journal; give its disk room"},
		{Code: "scrape_error", Means: "state or metrics could not be read at some moment", Do: "see the samples for the reason; an overloaded router answers late"},
		{Code: "scrape_interval_gap", Means: "two looks at the router lie more than 2.5 intervals apart", Do: "give the load generator a machine of its own, or sample less often"},
		{Code: "counter_missing", Means: "a counter stands in only one of the first and the last look", Do: "make sure that one release of the router served the whole run"},
		{Code: "counter_reset", Means: "a counter became smaller", Do: "the router was started anew within the run: find out why, and repeat the run"},
		{Code: "input_changed", Means: "a fleet or profile file is not what it was when the run began", Do: "repeat the run and leave its inputs alone"},
		{Code: "journal_replaced", Means: "another file stands under the journal's name, and the old one is not among its ended files", Do: "let nothing but the router move its journal; keep more ended files (--journal-keep of serve)"},
		{Code: "journal_truncated", Means: "the journal became shorter", Do: "let nothing cut the journal while it is written (copytruncate of logrotate does)"},
		{Code: "journal_parse_error", Means: "a line of the journal is none, or the journal could not be read", Do: "look at journal.jsonl of the point; the release that wrote it must be one that this program knows"},
		{Code: "client_records_missing", Means: "a point has no client rows", Do: "the load generator died before its first request ended: repeat the run"},
		{Code: "client_parse_error", Means: "a client row cannot be read, or stands twice", Do: "restore requests.jsonl of the point from a copy, or repeat the run"},
		{Code: "warmup_parse_error", Means: "a row of the warm-up cannot be read", Do: "the score does not rest on it; restore warmup.jsonl from a copy"},
		{Code: "request_mismatch", Means: "client and journal tell the end, the status or the tokens of one request differently", Do: "look at the request's rows in requests.jsonl and journal.jsonl", Ours: true},
		{Code: "evidence_changed", Means: "files of the run are not what they were when it ended, or are missing", Do: "restore them from a copy, or repeat the run: what they tell is not what was measured", Ours: true},
		{Code: "not_idle", Means: "the router was busy before or after the point, so its counters hold more than the point", Do: "keep other clients away, or wait longer (--idle)", Ours: true},
	}
}

// Finding is a diagnostic that was raised.
type Finding struct {
	Code    string   `json:"code"`
	Point   string   `json:"point"` // label; "" = the run
	Message string   `json:"message"`
	Hint    string   `json:"hint"`
	Count   int      `json:"count"`
	Samples []string `json:"examples"` // at most five
}

// examples bounds what a finding shows.
const examples = 5

type findings struct {
	point string
	out   []Finding
}

// add raises a diagnostic of the table. got says what was seen.
func (f *findings) add(code, got string, count int, samples ...string) {
	for _, d := range Diagnostics() {
		if d.Code != code {
			continue
		}
		m := d.Means
		if got != "" {
			m += ": " + got
		}
		f.out = append(f.out, Finding{Code: code, Point: f.point, Message: m, Hint: d.Do, Count: count, Samples: append([]string{}, samples[:min(len(samples), examples)]...)})
		return
	}
	panic("bench: a diagnostic that is not in the table: " + code)
}
