package drills

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
)

// verifies is the offline look at a copied run with the operator's public key.
var verifies = []string{"gate", "verify", "{run}", "--trust", "{dir}/sbx/keys/operator.key.pub"}

// tamper is a fault of the record that gate verify must name.
func tamper(id, how, code string, do func(*scene)) fault {
	return fault{id: id, stage: "G", where: "record", how: how, do: both(func(s *scene) { s.bare = true }, do), args: verifies, gate: "Record", code: code, exit: 8, still: true}
}

func replace(old, new string) func([]byte) []byte {
	return func(b []byte) []byte {
		if !bytes.Contains(b, []byte(old)) {
			return append(b, old...) // a drill that changes nothing is seen as unnoticed
		}
		return bytes.Replace(b, []byte(old), []byte(new), 1)
	}
}

// lines changes the log as a list of lines.
func lines(change func([]string) []string) func([]byte) []byte {
	return func(b []byte) []byte {
		l := strings.SplitAfter(strings.TrimSuffix(string(b), "\n"), "\n")
		return []byte(strings.TrimSuffix(strings.Join(change(l), ""), "\n") + "\n")
	}
}

func flip(at int) func([]byte) []byte {
	return func(b []byte) []byte {
		if at < 0 {
			at = len(b) / 2
		}
		b[at] ^= 1
		return b
	}
}

var recordFaults = []fault{
	tamper("log-verdict", "a failed verdict is written over with passed bytes", "line", inRun("log.jsonl", replace(`"state":"passed"`, `"state":"failed"`))),
	tamper("log-time", "the time of a line is another", "line", inRun("log.jsonl", replace(`"time":"20`, `"time":"21`))),
	tamper("log-line-gone", "a line is missing", "chain", inRun("log.jsonl", lines(func(l []string) []string { return append(l[:9:9], l[10:]...) }))),
	tamper("log-line-twice", "a line stands twice", "chain", inRun("log.jsonl", lines(func(l []string) []string { return append(l[:9:9], l[8:]...) }))),
	tamper("log-lines-swapped", "two lines changed places", "chain", inRun("log.jsonl", lines(func(l []string) []string { l[8], l[9] = l[9], l[8]; return l }))),
	tamper("log-first-gone", "the first line is missing", "chain", inRun("log.jsonl", lines(func(l []string) []string { return l[1:] }))),
	tamper("log-torn", "the last line is unfinished", "torn", inRun("log.jsonl", func(b []byte) []byte { return b[:len(b)-20] })),
	tamper("log-empty", "the log is empty", "log", inRun("log.jsonl", func([]byte) []byte { return nil })),
	tamper("log-gone", "the log is missing", "log", gone("log.jsonl")),
	tamper("log-garbage", "the log is no text", "line", inRun("log.jsonl", func(b []byte) []byte { return append([]byte("\x00\xff\xfe\n"), b...) })),
	tamper("log-appended", "a line is added that nobody wrote", "line", inRun("log.jsonl", func(b []byte) []byte {
		return append(b, `{"seq":9999,"kind":"verdict","gate":"G","body":{"state":"passed"}}`+"\n"...)
	})),
	tamper("log-cut", "the end of the log is cut off at a line", "seal_unverified", inRun("log.jsonl", lines(func(l []string) []string { return l[:len(l)/2] }))),
	tamper("object-bit", "one bit of evidence is another", "digest", inRun("evidence:D/budget", flip(-1))),
	tamper("object-cut", "evidence is shorter", "digest", inRun("evidence:F/store", func(b []byte) []byte { return b[:len(b)/2] })),
	tamper("object-empty", "evidence is empty", "digest", inRun("evidence:G/trial", func([]byte) []byte { return nil })),
	tamper("object-gone", "evidence is missing", "missing", gone("evidence:C/live/e1")),
	tamper("object-statement", "a statement is another engine's", "digest", func(s *scene) {
		b, err := os.ReadFile(filepath.Join(s.run(), s.named("evidence:E/statement/e0")))
		must(s.t, err)
		inRun("evidence:E/statement/e1", func([]byte) []byte { return b })(s)
	}),
	tamper("object-link", "evidence is a link", "irregular_file", func(s *scene) {
		path := filepath.Join(s.run(), s.named("evidence:A/inputs"))
		must(s.t, os.Rename(path, filepath.Join(s.state, "away")))
		must(s.t, os.Symlink(filepath.Join(s.state, "away"), path))
	}),
	tamper("object-pipe", "evidence is a pipe", "irregular_file", func(s *scene) {
		path := filepath.Join(s.run(), s.named("evidence:A/inputs"))
		must(s.t, os.Remove(path))
		must(s.t, mkfifo(path))
	}),
	tamper("seal-gone", "a seal is missing", "missing", gone("seals/D.sigstore.json")),
	tamper("seal-bit", "one bit of a seal is another", "seal_unverified", inRun("seals/D.sigstore.json", flip(-1))),
	tamper("seal-of-another", "a seal is another gate's", "seal_unverified", func(s *scene) {
		b, err := os.ReadFile(filepath.Join(s.run(), "seals", "C.sigstore.json"))
		must(s.t, err)
		inRun("seals/D.sigstore.json", func([]byte) []byte { return b })(s)
	}),
	tamper("seal-gigantic", "a seal has 40 MiB", "seal_unverified", inRun("seals/D.sigstore.json", func([]byte) []byte { return bytes.Repeat([]byte("x"), 40<<20) })),
	tamper("seal-words", "a seal is no bundle", "seal_unverified", inRun("seals/A.sigstore.json", func([]byte) []byte { return []byte("{}") })),
	tamper("fleet-mirror", "the frozen fleet file was edited", "digest", inRun("fleet.json", replace("narwhal-sim", "narwhal-smi"))),
	tamper("plan-mirror", "the recorded plan was edited", "digest", inRun("plan.json", flip(-1))),
	tamper("file-unknown", "a file lies there that nothing explains", "unknown_file", func(s *scene) { put(s, "x", s.run(), "notes.txt") }),
	{id: "seal-other-key", stage: "G", where: "key", how: "another key is trusted than signed", do: func(s *scene) {
		s.bare = true
		r := s.w.run(s.state, nil, "keys", "generate", "-o", filepath.Join(s.state, "other.key"))
		if r.exit != 0 {
			s.t.Fatal(r.err)
		}
		must(s.t, os.Rename(filepath.Join(s.state, "other.key.pub"), filepath.Join(s.w.dir, "other.key.pub")))
	}, args: []string{"gate", "verify", "{run}", "--trust", "{dir}/other.key.pub"}, gate: "Record", code: "seal_unverified", exit: 8, still: true, quick: true},
	{id: "verify-no-record", stage: "G", where: "command line", how: "the folder is no run", do: func(s *scene) { s.bare = true }, args: []string{"gate", "verify", "{dir}/sbx/keys"}, gate: "Record", code: "log", exit: 8, still: true},
	{id: "verify-absent", stage: "G", where: "command line", how: "the folder is not there", do: func(s *scene) { s.bare = true }, args: []string{"gate", "verify", "{dir}/none"}, gate: "Record", code: "record_unreadable", exit: 2, hint: "folder", still: true},
	{id: "resume-broken", stage: "G", where: "record", how: "a run is resumed whose log was changed", do: inRun("log.jsonl", replace(`"state":"passed"`, `"state":"failed"`)), args: []string{"gate", "run", "--yes"}, gate: "Record", code: "chain_broken", exit: 8, hint: "gate verify", still: true, quick: true},
	{id: "status-object-gone", stage: "G", where: "record", how: "evidence is missing and the status is asked", do: gone("evidence:D/budget"), args: []string{"gate", "status"}, gate: "D", code: "stale", exit: 0, still: true},
}
