package drills

import (
	"encoding/json"
	"strings"
)

// fault is one row of the table.
type fault struct {
	id string
	// stage is the last gate that has passed before; "" is a fleet that was never run.
	stage string
	// where and how say what is broken, and how.
	where, how string
	// do breaks it; what it registers with heal mends it again.
	do func(*scene)
	// args are the command without -f and --format; nil runs the gate after stage.
	args []string
	// gate is the one that must find it; "" is the one after stage.
	gate string
	// code, exit and hint are what must be found: a code of a finding or an error, the exit
	// code, and a word of the hint beside that code.
	code string
	exit int
	hint string
	// says is a part of the message beside a code that many checks share.
	says string
	// orCode and orExit are what is found where another look at the same thing comes first.
	orCode string
	orExit int
	// late says why another check than the named one finds it.
	late string
	// still says that the hosts are as before: nothing is to be mended.
	still bool
	// space faults are provoked on hosts with OpenSSH in network namespaces.
	space bool
	// booted faults are provoked on a host with systemd.
	booted bool
	// needs says what is missing here for the fault, "" for nothing; nil needs nothing.
	needs func() string
	// quick faults are part of every test run.
	quick bool
}

// next is the gate after a letter.
func next(stage string) string {
	if stage == "" {
		return "A"
	}
	return string("ABCDEFGG"[strings.Index("ABCDEFG", stage)+1])
}

func (f fault) finder() string {
	if f.gate != "" {
		return f.gate
	}
	return next(f.stage)
}

// reply is the part of the envelope that drills read.
type reply struct {
	Status   string `json:"status"`
	ExitCode int    `json:"exit_code"`
	Data     struct {
		Gates []struct {
			Gate, State, Because string
			Findings             []struct {
				Code, Hint, Message string
				Note                bool
			}
		}
		Dir     string
		Missing []json.RawMessage
	}
	Errors []struct{ Code, Hint, Message, Gate string }
}

// result is what one drill found.
type result struct {
	fault   fault
	exit    int
	found   string // code; "" = not the wanted one
	by      string // gate or verb
	others  []string
	hint    bool
	passed  bool // a gate that should not have passed did
	seconds float64
	said    string
}

// named reports whether the wanted check found the fault.
func (r result) named() bool { return !r.passed && r.found != "" && r.fault.late == "" }

// whole reports whether everything is as the table says.
func (r result) whole() bool {
	return !r.passed && r.found != "" && (r.exit == r.fault.exit || r.fault.orCode != "" && r.exit == r.fault.orExit) && r.hint
}

// read compares a reply with the row.
func (r *result) read(e reply) {
	f := r.fault
	match := func(code, message, hint, by string) {
		if code != f.code && (f.orCode == "" || code != f.orCode) || !strings.Contains(message, f.says) {
			r.others = append(r.others, code)
			return
		}
		r.found, r.by = code, by
		r.hint = r.hint || strings.Contains(strings.ToLower(hint), strings.ToLower(f.hint))
	}
	for _, x := range e.Errors {
		match(x.Code, x.Message, x.Hint, x.Gate)
	}
	for _, g := range e.Data.Gates {
		for _, x := range g.Findings {
			if !x.Note {
				match(x.Code, x.Message, x.Hint, g.Gate)
			}
		}
		if f.code == "stale" && g.Gate == f.finder() && g.State == "stale" {
			match("stale", g.Because, g.Because, g.Gate)
		}
		// Gates that passed before the fault keep their verdict in the record.
		fresh := g.Gate > f.stage || f.code == "stale"
		if g.State == "passed" && (g.Gate == f.finder() || g.Gate > f.finder() && g.Gate > f.stage) && fresh {
			r.passed = true
		}
	}
	if f.exit != 0 && r.exit == 0 {
		r.passed = true
	}
	if r.by == "" && r.found != "" {
		r.by = "command"
	}
}
