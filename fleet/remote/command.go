package remote

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
)

// maxLine bounds a command line: a shell gets it as one argument, and Linux takes 128 KiB.
const maxLine = 128<<10 - 1

// Command is one command for a host.
type Command struct {
	// Argv is run as it is, without a shell's interpretation.
	Argv []string
	// Script is run by sh -c instead of Argv.
	Script string
	Env    map[string]string
	// SecretEnv goes to the command's environment through standard input: it is in no command
	// line and no file. A value with a newline or NUL is refused.
	SecretEnv map[string]fleet.Secret
	// Stdin is the command's standard input, empty for none. It passes through a file on the host
	// that is deleted before the command starts.
	Stdin []byte
	// Limit ends the command after this time, 0 for never. The host enforces it too, a little
	// later and in whole seconds, in case the connection is gone.
	Limit time.Duration
	// MaxOutput bounds the bytes kept of stdout, and of stderr; 0 is the option of that name.
	MaxOutput int
	// Stay is for a command that leaves processes running when it returns. They must have their
	// own standard output and error, or the command is not seen to return. Without Stay, what is
	// left of the process group is killed when the command returns.
	Stay bool
}

// name is the command's first word, for errors.
func (c Command) name() string {
	if len(c.Argv) > 0 {
		return c.Argv[0]
	}
	return "script"
}

// words are argv, or the script.
func (c Command) words() []string {
	if len(c.Argv) > 0 {
		return c.Argv
	}
	return []string{c.Script}
}

// leader is the text of the session leader.
func (c Command) leader() string {
	if len(c.Argv) > 0 {
		return inner + become
	}
	return inner + follow
}

var variable = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// check returns the reason why the command cannot be sent, or "".
func (c Command) check() string {
	switch {
	case len(c.Argv) > 0 && c.Script != "":
		return "argv and script are both set"
	case len(c.Argv) == 0 && c.Script == "":
		return "neither argv nor script is set"
	case len(c.Argv) > 0 && c.Argv[0] == "":
		return "the first word of argv is empty"
	case c.Limit < 0 || c.MaxOutput < 0:
		return "a limit is negative"
	}
	for i, w := range c.words() {
		if strings.IndexByte(w, 0) >= 0 {
			return fmt.Sprintf("word %d holds a NUL", i)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Env)) {
		if reason := badVariable(name); reason != "" {
			return reason
		}
		if strings.IndexByte(c.Env[name], 0) >= 0 {
			return fmt.Sprintf("variable %s holds a NUL", name)
		}
		if _, both := c.SecretEnv[name]; both {
			return fmt.Sprintf("variable %s is set twice", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.SecretEnv)) {
		if reason := badVariable(name); reason != "" {
			return reason
		}
		if strings.ContainsAny(c.SecretEnv[name].Reveal(), "\x00\n") {
			return fmt.Sprintf("secret %s holds a newline or a NUL", name)
		}
	}
	return ""
}

// reserved are variables that a shell keeps to itself: exporting one ends it, or breaks the wrapper.
var reserved = []string{"IFS", "PPID", "UID", "EUID", "SHELLOPTS", "BASHOPTS", "BASH_VERSINFO"}

func badVariable(name string) string {
	if !variable.MatchString(name) {
		return fmt.Sprintf("%q is no name of a variable", name)
	}
	if strings.HasPrefix(name, "narwhal_") || slices.Contains(reserved, name) {
		return fmt.Sprintf("the variable %s is reserved", name)
	}
	return ""
}

// The shell text around a command. Standard input carries the secrets, one a line, then the
// command's input, then nothing: it stays open for as long as the command may run.
const (
	// readInput takes the command's input from standard input into descriptor 4.
	readInput = `narwhal_t=$(umask 077; mktemp "${TMPDIR:-/tmp}/narwhal.XXXXXX") || exit 125
head -c %[1]d >"$narwhal_t"
if [ "$(wc -c <"$narwhal_t")" -ne %[1]d ]; then rm -f "$narwhal_t"; echo "narwhal: input did not arrive" >&2; exit 125; fi
exec 4<"$narwhal_t"
rm -f "$narwhal_t"
`
	// watch runs the command in a session of its own. When standard input ends, the process group
	// gets TERM and, two seconds later, KILL; the wrapper waits for that before it exits.
	watch = `exec 3<&0 </dev/null
setsid sh -c %s sh "$@" <&4 3<&- 4<&- & narwhal_p=$!
exec 4<&-
{
while IFS= read -r _; do :; done
trap '' TERM HUP
kill -s TERM -- "-$narwhal_p" "$narwhal_p"
narwhal_i=0
while [ "$narwhal_i" -lt 20 ] && kill -0 "-$narwhal_p"; do
sleep 0.1 || { sleep 1; narwhal_i=$((narwhal_i + 9)); }
narwhal_i=$((narwhal_i + 1))
done
kill -s KILL -- "-$narwhal_p"
} <&3 3<&- >/dev/null 2>&1 & narwhal_w=$!
exec 3<&-
wait "$narwhal_p" 2>/dev/null
narwhal_r=$?
{ kill "$narwhal_w"; wait "$narwhal_w"; } 2>/dev/null
`
	// reap ends what the command left in its group.
	reap = `kill -s KILL -- "-$narwhal_p" 2>/dev/null
`
	// inner is the session leader before it becomes the command. Its arguments are the host's own
	// limit in seconds (0 = none), NAME=value words, "--", and the command. It runs a script itself.
	inner = `[ "$1" = 0 ] || ( (sleep "$1" && { trap '' TERM; kill -s TERM 0; sleep 2; kill -s KILL 0; }) </dev/null >/dev/null 2>&1 & )
shift
while [ "$1" != -- ]; do export "$1"; shift; done
shift
`
	become = `exec "$@"`
	follow = `narwhal_s=$1
shift
eval " $narwhal_s"`
)

// backstop is how much later than here the host ends a command by itself.
const backstop = 5 * time.Second

// line returns the command line for the server.
func (c Command) line() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(c.SecretEnv)) {
		fmt.Fprintf(&b, "IFS= read -r %[1]s || exit 125\nexport %[1]s\n", name)
	}
	if len(c.Stdin) > 0 {
		fmt.Fprintf(&b, readInput, len(c.Stdin))
	} else {
		b.WriteString("exec 4</dev/null\n")
	}
	fmt.Fprintf(&b, watch, Quote(c.leader()))
	if !c.Stay {
		b.WriteString(reap)
	}
	b.WriteString(`exit "$narwhal_r"`)
	limit := int64(0)
	if c.Limit > 0 {
		limit = int64((c.Limit + backstop + time.Second - 1) / time.Second)
	}
	words := []string{"exec", "sh", "-c", b.String(), "sh", strconv.FormatInt(limit, 10)}
	for _, name := range slices.Sorted(maps.Keys(c.Env)) {
		words = append(words, name+"="+c.Env[name])
	}
	return Quote(append(append(words, "--"), c.words()...)...)
}

// head returns the bytes that standard input begins with.
func (c Command) head() []byte {
	var b []byte
	for _, name := range slices.Sorted(maps.Keys(c.SecretEnv)) {
		b = append(append(b, c.SecretEnv[name].Reveal()...), '\n')
	}
	return append(b, c.Stdin...)
}
