package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/narwhal-fleet/narwhal/attest"
	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/record"
)

const independent = "../../docs/verify/narwhal_verify.py"

// independentTools skips without python3 and openssl, unless they must be there.
func independentTools(t *testing.T) {
	t.Helper()
	for _, tool := range []string{"python3", "openssl"} {
		if _, err := exec.LookPath(tool); err != nil {
			if os.Getenv("NARWHAL_REQUIRE_PYTHON") == "1" {
				t.Fatalf("no %s, and NARWHAL_REQUIRE_PYTHON is 1", tool)
			}
			t.Skipf("needs %s", tool)
		}
	}
}

// independentlyIfThere is independently where its tools are, else success.
func independentlyIfThere(t *testing.T, dir string, trust ...string) (int, []string) {
	t.Helper()
	for _, tool := range []string{"python3", "openssl"} {
		if _, err := exec.LookPath(tool); err != nil && os.Getenv("NARWHAL_REQUIRE_PYTHON") != "1" {
			return 0, nil
		}
	}
	return independently(t, dir, trust...)
}

// independently runs the verifier that was written from docs/record-format.md alone.
func independently(t *testing.T, dir string, trust ...string) (code int, codes []string) {
	t.Helper()
	args := []string{independent}
	for _, k := range trust {
		args = append(args, "--trust", k)
	}
	cmd := exec.Command("python3", append(args, dir)...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	var found struct {
		Problems []struct {
			Code string `json:"code"`
		} `json:"problems"`
	}
	if code = cmd.ProcessState.ExitCode(); code != 2 {
		if err := json.Unmarshal(out.Bytes(), &found); err != nil {
			t.Fatalf("exit %d: %v\n%s", code, err, errs.String())
		}
	}
	for _, p := range found.Problems {
		codes = append(codes, p.Code)
	}
	slices.Sort(codes)
	return code, slices.Compact(codes)
}

// tampering changes a copy of a record. Its trust is the operator's key unless named.
type tampering struct {
	do    func(*forger)
	trust func(*forger) []string
	holds bool
}

// forger changes one copy of a record.
type forger struct {
	t        *testing.T
	dir      string
	operator *attest.Signer
	pub      string // file with the operator's public key
	other    *attest.Signer
	otherPub string
}

func (f *forger) path(name string) string { return filepath.Join(f.dir, name) }

func (f *forger) read(name string) []byte {
	f.t.Helper()
	b, err := os.ReadFile(f.path(name))
	if err != nil {
		f.t.Fatal(err)
	}
	return b
}

func (f *forger) write(name string, b []byte) {
	f.t.Helper()
	if err := os.WriteFile(f.path(name), b, 0o600); err != nil {
		f.t.Fatal(err)
	}
}

func (f *forger) remove(name string) {
	f.t.Helper()
	if err := os.Remove(f.path(name)); err != nil {
		f.t.Fatal(err)
	}
}

func (f *forger) lines() [][]byte {
	return bytes.Split(bytes.TrimSuffix(f.read(record.LogFile), []byte("\n")), []byte("\n"))
}

func (f *forger) log(lines [][]byte) {
	f.write(record.LogFile, append(bytes.Join(lines, []byte("\n")), '\n'))
}

// find is the index of the n-th line with the text.
func (f *forger) find(text string, n int) int {
	f.t.Helper()
	for i, l := range f.lines() {
		if bytes.Contains(l, []byte(text)) {
			if n == 0 {
				return i
			}
			n--
		}
	}
	f.t.Fatalf("no line holds %s", text)
	return 0
}

func (f *forger) flip(name string, at int) {
	b := f.read(name)
	if at < 0 {
		at += len(b)
	}
	b[at] ^= 1
	f.write(name, b)
}

func sumOf(b []byte) string {
	d := sha256.Sum256(b)
	return hex.EncodeToString(d[:])
}

// rechain writes lines with seq, prev and sum that fit, as a forger would.
func (f *forger) rechain(lines [][]byte) {
	f.t.Helper()
	prev := strings.Repeat("0", 64)
	for i, l := range lines {
		var ev record.Event
		cut := bytes.LastIndex(l, []byte(`,"sum":"`))
		if err := json.Unmarshal(append(bytes.Clone(l[:cut]), '}'), &ev); err != nil {
			f.t.Fatal(err)
		}
		ev.Seq, ev.Prev = int64(i+1), prev
		var head bytes.Buffer
		enc := json.NewEncoder(&head)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(ev); err != nil {
			f.t.Fatal(err)
		}
		text := bytes.TrimSuffix(head.Bytes(), []byte("}\n"))
		lines[i] = fmt.Appendf(nil, `%s,"sum":"%s"}`, text, sumOf(text))
		prev = sumOf(lines[i])
	}
	f.log(lines)
}

// replace changes text in one line and makes the chain fit again.
func (f *forger) replace(line int, old, new string) {
	f.t.Helper()
	lines := f.lines()
	changed := bytes.Replace(lines[line], []byte(old), []byte(new), 1)
	if bytes.Equal(changed, lines[line]) {
		f.t.Fatalf("line %d does not hold %s: %s", line, old, lines[line])
	}
	lines[line] = changed
	f.rechain(lines)
}

// numbers are where a body names a line by its number.
var numbers = regexp.MustCompile(`"seq":([0-9]+),"digest"|"intent":([0-9]+)`)

// drop removes every piece of evidence with the key. What names later lines by their number goes on to name them.
func (f *forger) drop(key string) {
	f.t.Helper()
	var left [][]byte
	now := map[string]int{}
	for i, l := range f.lines() {
		if !bytes.Contains(l, []byte(`"body":{"key":"`+key+`","ref":`)) {
			left = append(left, l)
			now[strconv.Itoa(i+1)] = len(left)
		}
	}
	if len(left) == len(f.lines()) {
		f.t.Fatalf("no line is evidence of %s", key)
	}
	for i, l := range left {
		left[i] = numbers.ReplaceAllFunc(l, func(text []byte) []byte {
			name, rest, _ := strings.Cut(string(text), ":")
			old, rest, more := strings.Cut(rest, ",")
			if more {
				rest = "," + rest
			}
			return fmt.Appendf(nil, "%s:%d%s", name, now[old], rest)
		})
	}
	f.rechain(left)
}

// store keeps an object and returns its reference.
func (f *forger) store(media string, b []byte) record.Ref {
	ref := record.Ref{SHA256: sumOf(b), Media: media, Bytes: int64(len(b))}
	f.write(filepath.Join(record.ObjectDir, ref.SHA256), b)
	return ref
}

// reseal signs every seal anew over the log as it is, after a change of the statement.
func (f *forger) reseal(s *attest.Signer, change func(*gates.SealedGate, *attest.Statement)) {
	f.t.Helper()
	for i := range f.lines() {
		lines := f.lines()
		var ev record.Event
		cut := bytes.LastIndex(lines[i], []byte(`,"sum":"`))
		if err := json.Unmarshal(append(bytes.Clone(lines[i][:cut]), '}'), &ev); err != nil || ev.Kind != record.KindSeal {
			continue
		}
		was, err := record.Body[record.Seal](ev)
		if err != nil {
			f.t.Fatal(err)
		}
		st := f.statement(was.Ref)
		var p gates.SealedGate
		if err := json.Unmarshal(st.Predicate, &p); err != nil {
			f.t.Fatal(err)
		}
		digest := sumOf(lines[was.Seq-1])
		p.Seq = was.Seq
		st.Subject = []attest.Subject{attest.SHA256Subject(fmt.Sprintf("%s/log.jsonl#%d", p.Run, was.Seq), digest)}
		if p.Previous != "" {
			p.Previous = sumOf(f.read(filepath.Join(record.SealDir, string(p.Gate[0]-1)+".sigstore.json")))
		}
		change(&p, &st)
		if st.Predicate, err = json.Marshal(p); err != nil {
			f.t.Fatal(err)
		}
		bundle, err := attest.Sign(s, st)
		if err != nil {
			f.t.Fatal(err)
		}
		f.write(filepath.Join(record.SealDir, ev.Gate+".sigstore.json"), bundle)
		f.remove(filepath.Join(record.ObjectDir, was.Ref.SHA256))
		body, err := json.Marshal(record.Seal{Ref: f.store(was.Ref.Media, bundle), Seq: was.Seq, Digest: digest})
		if err != nil {
			f.t.Fatal(err)
		}
		f.replace(i, string(ev.Body), string(body))
	}
}

func (f *forger) statement(ref record.Ref) attest.Statement {
	f.t.Helper()
	var b struct {
		Envelope struct {
			Payload []byte `json:"payload"`
		} `json:"dsseEnvelope"`
	}
	var st attest.Statement
	if err := json.Unmarshal(f.read(filepath.Join(record.ObjectDir, ref.SHA256)), &b); err != nil {
		f.t.Fatal(err)
	}
	if err := json.Unmarshal(b.Envelope.Payload, &st); err != nil {
		f.t.Fatal(err)
	}
	return st
}

// sealObject is the object of a gate's seal.
func (f *forger) sealObject(gate string) string {
	return filepath.Join(record.ObjectDir, sumOf(f.read(filepath.Join(record.SealDir, gate+".sigstore.json"))))
}

// editSeal changes a seal's bundle in its object, its copy and its line.
func (f *forger) editSeal(gate string, change func(string) string) {
	f.t.Helper()
	mirror := filepath.Join(record.SealDir, gate+".sigstore.json")
	old := f.read(mirror)
	b := []byte(change(string(old)))
	if bytes.Equal(old, b) {
		f.t.Fatal("the seal did not change")
	}
	f.write(mirror, b)
	ref := f.store("x", b)
	at := f.find(sumOf(old), 0)
	f.replace(at, fmt.Sprintf(`"sha256":"%s"`, sumOf(old)), fmt.Sprintf(`"sha256":"%s"`, ref.SHA256))
	if len(b) != len(old) {
		f.replace(at, fmt.Sprintf(`"bytes":%d`, len(old)), fmt.Sprintf(`"bytes":%d`, ref.Bytes))
	}
}

func same(*gates.SealedGate, *attest.Statement) {}

func (f *forger) objectOf(key string) string {
	line := f.lines()[f.find(`"key":"`+key, 0)]
	_, rest, _ := strings.Cut(string(line), `"sha256":"`)
	return filepath.Join(record.ObjectDir, rest[:64])
}

var tamperings = map[string]tampering{
	"nothing":                     {do: func(f *forger) {}, holds: true},
	"nothing, the record's key":   {do: func(f *forger) {}, trust: func(*forger) []string { return nil }, holds: true},
	"nothing, two keys":           {do: func(f *forger) {}, trust: func(f *forger) []string { return []string{f.otherPub, f.pub} }, holds: true},
	"another key is trusted":      {do: func(f *forger) {}, trust: func(f *forger) []string { return []string{f.otherPub} }},
	"a bit of the first line":     {do: func(f *forger) { f.flip(record.LogFile, 60) }},
	"a bit in the middle":         {do: func(f *forger) { f.flip(record.LogFile, len(f.read(record.LogFile))/2) }},
	"a bit of the last sum":       {do: func(f *forger) { f.flip(record.LogFile, -10) }},
	"a bit of the last newline":   {do: func(f *forger) { f.flip(record.LogFile, -1) }},
	"a bit of an object":          {do: func(f *forger) { f.flip(f.objectOf("C/live"), 5) }},
	"a bit of a seal":             {do: func(f *forger) { f.flip("seals/C.sigstore.json", 300) }},
	"a bit of a seal's object":    {do: func(f *forger) { f.flip(f.sealObject("C"), 300) }},
	"a bit of the fleet's copy":   {do: func(f *forger) { f.flip(record.FleetFile, 20) }},
	"a bit of the plan's copy":    {do: func(f *forger) { f.flip(record.PlanFile, 20) }},
	"a line removed":              {do: func(f *forger) { l := f.lines(); f.log(slices.Delete(l, 5, 6)) }},
	"a line twice":                {do: func(f *forger) { l := f.lines(); f.log(slices.Insert(l, 5, l[5])) }},
	"two lines swapped":           {do: func(f *forger) { l := f.lines(); l[7], l[8] = l[8], l[7]; f.log(l) }},
	"all lines reversed":          {do: func(f *forger) { l := f.lines(); slices.Reverse(l); f.log(l) }},
	"cut in a line":               {do: func(f *forger) { b := f.read(record.LogFile); f.write(record.LogFile, b[:len(b)-40]) }},
	"cut at a line, seals remain": {do: func(f *forger) { f.log(f.lines()[:30]) }},
	"an earlier moment": {do: func(f *forger) { // a true prefix of the log is a record of its own
		f.log(f.lines()[:f.find(`"kind":"seal"`, 1)+1])
		for _, g := range []string{"C", "D", "E", "F", "G"} {
			f.remove("seals/" + g + ".sigstore.json")
		}
	}, holds: true},
	"an unsealed gate at the end": {do: func(f *forger) {
		f.log(f.lines()[:f.find(`"kind":"seal"`, 1)])
		for _, g := range []string{"B", "C", "D", "E", "F", "G"} {
			f.remove("seals/" + g + ".sigstore.json")
		}
	}, holds: true},
	"every seal stripped": {do: func(f *forger) {
		var left [][]byte
		for _, l := range f.lines() {
			if !bytes.Contains(l, []byte(`"kind":"seal"`)) {
				left = append(left, l)
			}
		}
		f.rechain(left)
		for _, g := range []string{"A", "B", "C", "D", "E", "F", "G"} {
			f.remove("seals/" + g + ".sigstore.json")
		}
	}},
	"no log":       {do: func(f *forger) { f.remove(record.LogFile) }},
	"an empty log": {do: func(f *forger) { f.write(record.LogFile, nil) }},
	"two objects swapped": {do: func(f *forger) {
		a, b := f.objectOf("C/live"), f.objectOf("C/cache")
		x, y := f.read(a), f.read(b)
		f.write(a, y)
		f.write(b, x)
	}},
	"an object removed":             {do: func(f *forger) { f.remove(f.objectOf("D/budget")) }},
	"an object longer":              {do: func(f *forger) { p := f.objectOf("D/budget"); f.write(p, append(f.read(p), ' ')) }},
	"an object that nobody named":   {do: func(f *forger) { f.store("text/plain", []byte("orphan")) }, holds: true},
	"an object with another name":   {do: func(f *forger) { f.write("objects/"+strings.Repeat("a", 64), []byte("x")) }},
	"a file that nothing explains":  {do: func(f *forger) { f.write("notes.txt", []byte("x")) }},
	"a seal that nothing explains":  {do: func(f *forger) { f.write("seals/H.sigstore.json", f.read("seals/A.sigstore.json")) }},
	"a leftover of a killed writer": {do: func(f *forger) { f.write(".atomic-1", []byte("x")) }, holds: true},
	"a link for an object": {do: func(f *forger) {
		p := f.objectOf("D/budget")
		f.write("../"+filepath.Base(f.dir)+"-moved", f.read(p))
		f.remove(p)
		if err := os.Symlink(filepath.Join("..", "..", filepath.Base(f.dir)+"-moved"), f.path(p)); err != nil {
			f.t.Fatal(err)
		}
	}},
	"a seal removed":                 {do: func(f *forger) { f.remove("seals/D.sigstore.json") }},
	"one seal for another":           {do: func(f *forger) { f.write("seals/A.sigstore.json", f.read("seals/B.sigstore.json")) }},
	"rechained: a time":              {do: func(f *forger) { f.replace(10, `"time":"20`, `"time":"21`) }},
	"rechained: a fact of a bond":    {do: func(f *forger) { f.replace(f.find(`"bonds":{"`, 2), `"bonds":{"`, `"bonds":{"x":"y","`) }},
	"rechained: an evidence removed": {do: func(f *forger) { at := f.find(`"key":"C/live`, 0); f.rechain(slices.Delete(f.lines(), at, at+1)) }},
	"rechained: a verdict":           {do: func(f *forger) { f.replace(f.find(`"kind":"verdict"`, 0), `"state":"passed"`, `"state":"failed"`) }},
	"rechained: a seal's line removed": {do: func(f *forger) {
		at := f.find(`"kind":"seal"`, 2)
		f.rechain(slices.Delete(f.lines(), at, at+1))
		f.remove("seals/C.sigstore.json")
	}},
	"rechained: another run":  {do: func(f *forger) { f.replace(0, `"run":"20`, `"run":"21`) }},
	"rechained: an odd kind":  {do: func(f *forger) { f.replace(len(f.lines())-1, `"kind":"seal"`, `"kind":"seel"`) }},
	"a space with a good sum": {do: func(f *forger) { f.spaced(len(f.lines()) - 1) }},
	"a seal without its signature": {do: func(f *forger) {
		f.editSeal("G", func(s string) string { return s[:strings.Index(s, `"signatures":[`)] + `"signatures":[]}}` })
	}},
	"a seal with its signature twice": {do: func(f *forger) {
		f.editSeal("G", func(s string) string {
			at := strings.Index(s, `{"sig":`)
			end := strings.LastIndex(s, "]")
			return s[:end] + "," + s[at:end] + s[end:]
		})
	}},
	"a seal with a key twice": {do: func(f *forger) {
		f.editSeal("G", func(s string) string {
			return `{"mediaType":"` + attest.BundleMediaType + `",` + s[1:]
		})
	}},
	"a seal with another payload": {do: func(f *forger) {
		f.editSeal("G", func(s string) string {
			_, rest, _ := strings.Cut(s, `"payload":"`)
			payload, _, _ := strings.Cut(rest, `"`)
			b, err := base64.StdEncoding.DecodeString(payload)
			if err != nil {
				f.t.Fatal(err)
			}
			b = bytes.Replace(b, []byte(`"verdict":"passed"`), []byte(`"verdict":"passeD"`), 1)
			return strings.Replace(s, payload, base64.StdEncoding.EncodeToString(b), 1)
		})
	}},
	"resealed by the operator": {do: func(f *forger) { f.replace(3, `"time":"20`, `"time":"21`); f.reseal(f.operator, same) }, holds: true},
	"resealed by another key":  {do: func(f *forger) { f.reseal(f.other, same) }},
	"resealed by another key, and the record names it": {do: func(f *forger) {
		f.replace(0, jsonText(string(f.operator.Public().PEM())), jsonText(string(f.other.Public().PEM())))
		f.reseal(f.other, same)
	}},
	"the same, and nobody says whom to trust": {do: func(f *forger) {
		f.replace(0, jsonText(string(f.operator.Public().PEM())), jsonText(string(f.other.Public().PEM())))
		f.reseal(f.other, same)
	}, trust: func(*forger) []string { return nil }, holds: true},
	"the operator's seals of another run": {do: func(f *forger) {
		f.reseal(f.operator, func(p *gates.SealedGate, st *attest.Statement) {
			p.Run = "20200101T000000.000Z-000000"
			st.Subject[0].Name = strings.Replace(st.Subject[0].Name, "20", "21", 1)
		})
	}},
	"the operator's seals with less evidence": {do: func(f *forger) {
		f.reseal(f.operator, func(p *gates.SealedGate, _ *attest.Statement) { p.Evidence = p.Evidence[1:] })
	}},
	"the operator's seals out of their order": {do: func(f *forger) {
		f.reseal(f.operator, func(p *gates.SealedGate, _ *attest.Statement) { p.Previous = "" })
	}},
	"sealed again without some evidence": {do: func(f *forger) {
		at := f.find(`"key":"C/live`, 0)
		lines := f.lines()
		lines[at] = bytes.Replace(lines[at], []byte(`"key":"C/live/`), []byte(`"key":"C/lively/`), 1)
		f.rechain(lines)
		f.reseal(f.operator, func(p *gates.SealedGate, _ *attest.Statement) {
			for i := range p.Evidence {
				if strings.HasPrefix(string(p.Evidence[i].Key), "C/live/") {
					p.Evidence[i].Key = record.Key(strings.Replace(string(p.Evidence[i].Key), "C/live/", "C/lively/", 1))
					break
				}
			}
		})
	}},
}

func jsonText(s string) string {
	b, _ := json.Marshal(s)
	return string(b)
}

// spaced writes a line with a space in it, and a sum that fits.
func (f *forger) spaced(line int) {
	lines := f.lines()
	cut := bytes.LastIndex(lines[line], []byte(`,"sum":"`))
	text := bytes.Replace(lines[line][:cut], []byte(`,"body":`), []byte(`, "body":`), 1)
	lines[line] = fmt.Appendf(nil, `%s,"sum":"%s"}`, text, sumOf(text))
	f.log(lines)
}

// independentVerifier compares both verifiers on the record and on tampered copies.
func independentVerifier(t *testing.T, w *world, dir string) {
	independentTools(t)
	pub := filepath.Join(w.dir, "sbx/keys/operator.key.pub")
	operator, _, err := attest.OpenKeyFile(filepath.Join(w.dir, "sbx/keys/operator.key"), nil)
	if err != nil {
		t.Fatal(err)
	}
	otherKey := filepath.Join(t.TempDir(), "other.key")
	other, _, err := attest.OpenKeyFile(otherKey, nil)
	if err != nil {
		t.Fatal(err)
	}
	check := func(t *testing.T, dir string, holds bool, trust []string) {
		t.Helper()
		args := []string{"gate", "verify", dir, "--format", "json"}
		for _, k := range trust {
			args = append(args, "--trust", k)
		}
		ours := w.run(args...)
		code, codes := independently(t, dir, trust...)
		want := 8
		if holds {
			want = 0
		}
		if ours.code != want || code != want {
			t.Errorf("gate verify ends with %d, the independent verifier with %d %v; want %d\n%s", ours.code, code, codes, want, tail(ours.out))
		}
	}
	for _, key := range onlyExpected(t, dir) {
		t.Run("sealed again without "+key, func(t *testing.T) {
			f := &forger{t: t, dir: copyTree(t, dir), operator: operator}
			f.drop(key)
			f.reseal(f.operator, func(p *gates.SealedGate, _ *attest.Statement) {
				p.Evidence = slices.DeleteFunc(p.Evidence, func(o gates.SealedObject) bool { return string(o.Key) == key })
			})
			ours := w.run("gate", "verify", f.dir, "--format", "json", "--trust", pub)
			var found []string
			for _, p := range w.reply(ours).Errors {
				found = append(found, p.Code)
			}
			slices.Sort(found)
			found = slices.Compact(found)
			code, codes := independently(t, f.dir, pub)
			if want := []string{"verdict_differs"}; ours.code != 8 || code != 8 || !slices.Equal(found, want) || !slices.Equal(codes, want) {
				t.Errorf("gate verify ends with %d %v, the independent verifier with %d %v", ours.code, found, code, codes)
			}
		})
	}
	for name, c := range tamperings {
		t.Run(name, func(t *testing.T) {
			f := &forger{t: t, dir: copyTree(t, dir), operator: operator, pub: pub, other: other, otherPub: otherKey + ".pub"}
			c.do(f)
			trust := []string{pub}
			if c.trust != nil {
				trust = c.trust(f)
			}
			check(t, f.dir, c.holds, trust)
		})
	}
	t.Run("bits anywhere", func(t *testing.T) {
		rng := rand.New(rand.NewPCG(1, 2))
		f := &forger{t: t, dir: copyTree(t, dir)}
		files := filesBelow(t, f.dir)
		for range 20 {
			name, _ := filepath.Rel(f.dir, files[rng.IntN(len(files))])
			b := f.read(name)
			if len(b) == 0 {
				continue
			}
			changed := bytes.Clone(b)
			changed[rng.IntN(len(b))] ^= 1 << rng.IntN(8)
			f.write(name, changed)
			check(t, f.dir, false, []string{pub})
			f.write(name, b)
		}
		check(t, f.dir, true, []string{pub})
	})
}

// onlyExpected is one key of each kind of evidence that the record has and that only the list of a verdict names.
func onlyExpected(t *testing.T, dir string) []string {
	t.Helper()
	snap, err := record.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	script, err := os.ReadFile(independent)
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]string{}
	for _, g := range snap.State.Gates {
		for key := range g.Evidence {
			if kind := key.Gate() + "/" + key.Kind(); !strings.Contains(string(script), fmt.Sprintf("%q: ", kind)) {
				kinds[kind] = string(key)
			}
		}
	}
	if kinds["D/decode"] == "" || kinds["F/restart"] == "" {
		t.Errorf("the record has none of some kind: %v", kinds)
	}
	return slices.Sorted(maps.Values(kinds))
}

// TestIndependentVerifierReadsWhatIsExpected has each kind of evidence that only the list of a verdict
// names in a record without an engine, and takes it away.
func TestIndependentVerifierReadsWhatIsExpected(t *testing.T) {
	t.Parallel()
	independentTools(t)
	always := map[string]string{"A": "A/inputs", "C": "", "D": "D/budget", "F": "F/store"}
	for _, key := range []string{"A/images/h", "A/model/h", "C/rank/e/1", "C/joined/e/1", "C/container/e", "D/decode/g/h", "D/tool/write/g/h", "D/incast/h", "F/lease/e", "F/restart/e"} {
		gate := key[:1]
		keys := []string{key}
		if k := always[gate]; k != "" {
			keys = append(keys, k)
			slices.Sort(keys)
		}
		list, err := json.Marshal(keys)
		if err != nil {
			t.Fatal(err)
		}
		for name, c := range map[string]struct {
			list, state string
			without     bool
			want        []string
		}{
			"there":                      {string(list), record.VerdictPassed, false, nil},
			"missing":                    {string(list), record.VerdictPassed, true, []string{"verdict_differs"}},
			"missing, and inconclusive":  {string(list), record.VerdictInconclusive, true, nil},
			"missing, and nobody says":   {"", record.VerdictPassed, true, nil},
			"expected out of order":      {`["` + gate + `/z","` + gate + `/y"]`, record.VerdictInconclusive, false, []string{"verdict_differs"}},
			"expected of another gate":   {`["Z/z"]`, record.VerdictInconclusive, false, []string{"verdict_differs"}},
			"expected, and it is a text": {`"x"`, record.VerdictInconclusive, false, []string{"verdict_differs"}},
		} {
			t.Run(key+" "+name, func(t *testing.T) {
				t.Parallel()
				dir := filepath.Join(t.TempDir(), "run")
				rec, err := record.Create(dir, record.Header{Run: "run-1", FleetName: "f", Fleet: []byte(`{"engines":[]}`), Version: "test"}, record.Options{})
				if err != nil {
					t.Fatal(err)
				}
				store := func(text string) record.Ref {
					ref, err := rec.Store("application/json", []byte(text))
					if err != nil {
						t.Fatal(err)
					}
					return ref
				}
				add := func(kind record.Kind, body any) {
					if _, err := rec.Append(kind, gate, "", "", body); err != nil {
						t.Fatal(err)
					}
				}
				for _, k := range keys {
					if k != key || !c.without {
						add(record.KindEvidence, record.Evidence{Key: record.Key(k), Ref: store(`{"fleet":{"engines":[]}}`)})
					}
				}
				said := record.Verdict{State: c.state}
				if c.list != "" {
					ref := store(c.list)
					said.Expects = &ref
				}
				add(record.KindVerdict, said)
				if err := rec.Close(); err != nil {
					t.Fatal(err)
				}
				if _, codes := independently(t, dir); !slices.Equal(codes, c.want) {
					t.Errorf("found %v, want %v", codes, c.want)
				}
			})
		}
	}
}

// TestIndependentVerifierIsShort keeps it readable in one sitting, and free of anything
// but the standard library.
func TestIndependentVerifierIsShort(t *testing.T) {
	b, err := os.ReadFile(independent)
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(b, []byte("\n")); n >= 300 {
		t.Errorf("%d lines, want fewer than 300", n)
	}
}

// TestRecordFormatNamesTheEvidence compares the table of docs/record-format.md and of the
// independent verifier with what the gates expect.
func TestRecordFormatNamesTheEvidence(t *testing.T) {
	doc, err := os.ReadFile("../../docs/record-format.md")
	if err != nil {
		t.Fatal(err)
	}
	script, err := os.ReadFile(independent)
	if err != nil {
		t.Fatal(err)
	}
	lease := fleet.RouterLease{Path: "/lease"}
	f := fleet.Fleet{Engines: []fleet.Engine{{IID: "e0"}, {IID: "e1"}}, Deploy: &fleet.Deploy{
		Hosts:   map[string]fleet.Host{"h0": {}, "h1": {}, "r": {}, "s": {}},
		Engines: map[string]fleet.Place{"e0": {Host: "h0"}, "e1": {Host: "h1"}},
		Router:  fleet.Router{Host: "r", Standby: &fleet.Standby{Host: "s"}, Lease: lease},
	}}
	subjects := map[string]string{
		"": "", "e0": "engine", "e1": "engine", "h0": "work-host", "h1": "work-host", "r": "work-host", "s": "work-host",
		"e0/e1": "engine-pair", "e1/e0": "engine-pair", "h0/h1": "host-pair",
	}
	for _, g := range pipeline() {
		for _, key := range g.Expect(f) {
			kind := key.Gate() + "/" + key.Kind()
			of, ok := subjects[strings.Join(key.Subjects(), "/")]
			if kind == "G/standby" || kind == "G/standing" || kind == "G/drain-standby" {
				of = "standby"
			}
			if kind == "A/hardware" {
				of = "engine-host"
			}
			if !ok || !strings.Contains(string(doc), fmt.Sprintf("| `%s` | %s |", kind, of)) {
				t.Errorf("docs/record-format.md lacks the row | `%s` | %s |", kind, of)
			}
			if !strings.Contains(string(script), fmt.Sprintf("%q: %q", kind, of)) {
				t.Errorf("%s lacks %q: %q in EVIDENCE", independent, kind, of)
			}
		}
	}
}
