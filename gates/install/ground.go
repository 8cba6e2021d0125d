package install

import (
	"fmt"
	"path"
	"strings"

	"github.com/narwhal-fleet/narwhal/fleet/remote"
	"github.com/narwhal-fleet/narwhal/gates"
)

// groundProbe looks at the place where the release is about to lie: with the shell alone,
// reading alone. It begins with what the release needs, so that an answer stands for itself.
func groundProbe(root string, b gates.Binary) string {
	dir := path.Join(root, gates.DirReleases, b.SHA256)
	return fmt.Sprintf(groundScript, remote.Quote(path.Clean(root)), remote.Quote(dir), remote.Quote(b.Arch), b.Bytes, remote.Quote(b.Interp))
}

const groundScript = `LC_ALL=C; LANGUAGE=; export LC_ALL LANGUAGE
root=%[1]s; dir=%[2]s; arch=%[3]s; interp=%[5]s
line() { printf '%%s\n' "$*"; }
own() { stat -L -c '%%u %%g %%a' "$1" 2>/dev/null || stat -L -f '%%u %%g %%Mp%%Lp' "$1" 2>/dev/null || line '- - -'; }
size() { stat -L -c %%s "$1" 2>/dev/null || stat -L -f %%z "$1" 2>/dev/null; }
line "want $arch"; line "bytes %[4]d"
line "machine $(uname -s) $(uname -m)"
line "user $(id -u) $(id -g) $(id -un 2>/dev/null) $(id -gn 2>/dev/null)"
if [ -n "$interp" ]; then if [ -e "$interp" ]; then line "loader there $interp"; else line "loader missing $interp"; fi; fi
if [ -f "$dir/narwhal" ]; then line "there $(size "$dir/narwhal")"; fi
for q in "$dir"/.narwhal-narwhal.*.part; do if [ -f "$q" ]; then line "part $(size "$q")"; fi; done
for q in "$root" "$root/releases" "$root/etc" "$root/units"; do if [ -d "$q" ]; then line "folder $(own "$q") $q"; fi; done
p=$root; while [ ! -d "$p" ] && [ "$p" != / ]; do p=${p%%/*}; p=${p:-/}; done
if cd -P "$p" 2>/dev/null; then
  r=$(pwd -P)
  df -Pk . 2>/dev/null | { read -r _; read -r _ _ _ a _ && line "free $a"; }
  case $(uname -s) in Linux) df -Pi . 2>/dev/null | { read -r _; read -r _ t _ f _ && line "inodes $t $f"; };; esac
  if [ -r /proc/self/mounts ]; then
    m= o=; while read -r _ d _ x _; do case $r/ in "${d%%/}"/*) if [ ${#d} -ge ${#m} ]; then m=$d o=$x; fi;; esac; done </proc/self/mounts
    line "mount $o $m"
  fi
  if [ "$p" = "$root" ]; then r=${r%%/*}; fi
  while [ -n "$r" ]; do line "above $(own "$r") $r"; r=${r%%/*}; done
else line "closed $p"
fi
line end
`

// maxLines bounds what is read of a host's answer.
const maxLines = 4096

// answer is what a script of this gate printed: the lines by their first word.
type answer map[string][]string

// readAnswer splits a script's lines; whole says that the last one was "end".
func readAnswer(data []byte) (a answer, whole bool) {
	a = answer{}
	lines := strings.SplitN(string(data), "\n", maxLines+1)
	if len(lines) > maxLines {
		return a, false
	}
	for _, l := range lines {
		l = strings.TrimSuffix(l, "\r")
		if whole && l != "" {
			return a, false // something follows the end
		}
		word, rest, _ := strings.Cut(l, " ")
		if word != "" {
			a[word] = append(a[word], rest)
		}
		whole = whole || l == "end"
	}
	return a, whole
}

// one is the rest of the first line with a word, "" without one.
func (a answer) one(word string) string {
	if len(a[word]) == 0 {
		return ""
	}
	return a[word][0]
}
