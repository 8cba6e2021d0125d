package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Codes of a Problem.
const (
	ProblemLog       = "log"            // the log is missing or unreadable
	ProblemLine      = "line"           // a line is not what was written
	ProblemChain     = "chain"          // a line does not follow the one before it
	ProblemTorn      = "torn"           // the last line is unfinished; opening the record repairs it
	ProblemMissing   = "missing"        // a file that the log names is not there
	ProblemDigest    = "digest"         // a file's bytes are not the recorded ones
	ProblemReference = "reference"      // a reference cannot be what it says
	ProblemSeal      = "seal"           // a seal names a line that the log does not have
	ProblemUnknown   = "unknown_file"   // a file that nothing in the log explains
	ProblemFile      = "irregular_file" // a link, pipe or device, or unreadable
	ProblemLimit     = "limit"          // more than Verify looks at
	NoticeOrphan     = "unreferenced"   // an intact object that no event names
	NoticeTemp       = "temporary_file" // left by a killed process
)

// Problem is one thing that does not hold. File is relative to the record.
type Problem struct {
	Code    string `json:"code"`
	File    string `json:"file"`
	Line    int    `json:"line,omitempty"`
	Message string `json:"message"`
}

// SealFile is a seal that the log names. The signature is not checked here.
type SealFile struct {
	Name   string // gate letter or other name
	File   string // relative to the record
	Sealed Sealed
	// Current says that the file holds this seal, by digest.
	Current bool
}

// Report is what Verify found. Problems is empty exactly when everything holds;
// Notices are harmless leftovers.
type Report struct {
	Run      string
	Fleet    string
	Events   int
	Objects  int // distinct objects that the log names
	Seals    []SealFile
	Head     string // digest of the last line that could be read
	Problems []Problem
	Notices  []Problem
	// State is the fold of the events that could be read; what it says is only
	// worth something when there are no problems.
	State State
}

const maxProblems = 10_000

type verifier struct {
	dir     string
	rep     *Report
	digests map[int64]string // seq → digest of its line
	refs    map[string]Ref
	torn    map[string]Repair
}

// Verify checks a record without changing it and without a network: the whole
// chain, every object that the log names, the mirrored files, and that nothing
// else lies there. It names every problem that it finds and never stops at the
// first. The error is for a folder that cannot be looked at.
func Verify(dir string) (Report, error) {
	info, err := os.Stat(dir)
	if err != nil {
		return Report{}, fmt.Errorf("verify record: %w", err)
	}
	if !info.IsDir() {
		return Report{}, fmt.Errorf("verify record: %s is not a folder", dir)
	}
	var rep Report
	v := &verifier{dir: dir, rep: &rep, digests: map[int64]string{}, refs: map[string]Ref{}, torn: map[string]Repair{}}
	v.readLog()
	v.checkObjects()
	v.checkMirrors()
	v.checkTorn()
	v.checkFiles()
	return rep, nil
}

func (v *verifier) problem(code, file string, line int, format string, args ...any) {
	switch n := len(v.rep.Problems); {
	case n < maxProblems:
		v.rep.Problems = append(v.rep.Problems, Problem{Code: code, File: file, Line: line, Message: fmt.Sprintf(format, args...)})
	case n == maxProblems:
		v.rep.Problems = append(v.rep.Problems, Problem{Code: ProblemLimit, Message: "more problems than are listed"})
	}
}

func (v *verifier) notice(code, file, message string) {
	if len(v.rep.Notices) < maxProblems {
		v.rep.Notices = append(v.rep.Notices, Problem{Code: code, File: file, Message: message})
	}
}

func (v *verifier) readLog() {
	f, size, err := openRegular(filepath.Join(v.dir, LogFile))
	if err != nil {
		v.problem(ProblemLog, LogFile, 0, "%s", cause(err))
		return
	}
	defer func() { _ = f.Close() }()
	if size > MaxLog {
		v.problem(ProblemLimit, LogFile, 0, "%d bytes, limit %d", size, MaxLog)
	}
	prev := genesis()
	err = walk(f, func(l rawLine) error {
		prev = v.line(l, prev)
		return nil
	})
	if err != nil {
		v.problem(ProblemLog, LogFile, 0, "%s", cause(err))
	}
	for _, seq := range v.rep.State.Malformed {
		v.problem(ProblemLimit, LogFile, int(seq), "more than %d intents at one time", MaxActions)
	}
	if v.rep.Events == 0 {
		v.problem(ProblemLog, LogFile, 0, "no event could be read")
	}
	v.rep.Run, v.rep.Fleet = v.rep.State.Run, v.rep.State.FleetName
}

// line checks one line and returns what the next one must follow. After a broken
// line the bytes found are taken as the line before, so that one change is
// reported where it is and once at the line after it, not at every later line.
func (v *verifier) line(l rawLine, prev link) link {
	next := link{seq: prev.seq + 1, digest: digestOf(l.b)}
	if l.torn() {
		v.problem(ProblemTorn, LogFile, l.n, "the last line is unfinished")
		return next
	}
	ev, err := decodeLine(l.b)
	if l.long {
		err = fmt.Errorf("longer than %d bytes", MaxLine)
	}
	if err != nil {
		v.problem(ProblemLine, LogFile, l.n, "%s", err)
		return next
	}
	if err := prev.follow(ev); err != nil {
		v.problem(ProblemChain, LogFile, l.n, "%s", err)
		next.seq = ev.Seq
	}
	v.rep.Events++
	v.rep.Head = next.digest
	v.digests[ev.Seq] = next.digest
	v.collect(ev, l.n)
	v.rep.State.apply(ev)
	return next
}

// collect notes what an event says about files.
func (v *verifier) collect(ev Event, line int) {
	var tree any
	if json.Unmarshal(ev.Body, &tree) == nil {
		v.references(tree, line)
	}
	body, err := ev.Decode()
	if err != nil {
		return
	}
	switch b := body.(type) {
	case *Repair:
		v.torn[b.File] = *b
	case *Seal:
		if v.digests[b.Seq] != b.Digest || b.Seq >= ev.Seq {
			v.problem(ProblemSeal, LogFile, line, "the seal of %s names line %d with digest %s, which the log does not have", clip(ev.Gate), b.Seq, b.Digest)
		}
		if !isName(ev.Gate) {
			v.problem(ProblemSeal, LogFile, line, "the seal has no usable name: %q", clip(ev.Gate))
		}
	}
}

// references finds every reference in a body, those inside a gate's own undo objects too.
func (v *verifier) references(tree any, line int) {
	switch t := tree.(type) {
	case []any:
		for _, e := range t {
			v.references(e, line)
		}
	case map[string]any:
		for _, e := range t {
			v.references(e, line)
		}
		digest, ok := t["sha256"].(string)
		media, hasMedia := t["media"].(string)
		n, hasBytes := t["bytes"].(float64)
		if !ok || !hasMedia || !hasBytes {
			return
		}
		ref := Ref{SHA256: digest, Media: media, Bytes: int64(n)}
		if err := ref.check(); err != nil {
			v.problem(ProblemReference, LogFile, line, "%s", err)
			return
		}
		if old, ok := v.refs[digest]; ok && old.Bytes != ref.Bytes {
			v.problem(ProblemReference, LogFile, line, "object %s is said to have %d bytes and %d bytes", digest, old.Bytes, ref.Bytes)
		}
		v.refs[digest] = ref
	}
}

// cause is an error's text without the folder of this machine.
func cause(err error) string {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err.Error()
	}
	return err.Error()
}
