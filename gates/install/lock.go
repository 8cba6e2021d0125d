package install

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/narwhal-fleet/narwhal/fleet/remote"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/record"
)

// lockName is the file below a root that says who installs there.
const lockName = "install.lock"

// lockFor is how long an installation may hold a root, in seconds of the host's clock. It is
// what ends a hold whose owner the host cannot see.
const lockFor = 3600

// lockProbe takes the root's lock. Its owner is the process on the host that serves this
// connection: with it ends the hold.
func lockProbe(root string, v gates.View) string {
	return fmt.Sprintf(lockScript, remote.Quote(filepath.Clean(root)), remote.Quote(holder(v)), remote.Quote(v.Run), remote.Quote(v.Fleet.Deploy.Name), lockFor)
}

// unlockProbe gives the lock back where it is ours.
func unlockProbe(root string, v gates.View) string {
	return fmt.Sprintf(unlockScript, remote.Quote(filepath.Join(root, lockName)), remote.Quote(holder(v)))
}

func holder(v gates.View) string {
	if v.Holder != "" {
		return v.Holder
	}
	return "run " + v.Run
}

// lockScript reads and writes the lock inside a turn, which one mkdir makes. A turn lasts
// milliseconds; one that stands for seconds is of a killed shell, and goes with the half
// lock that lies in it. The owner's process is the
// nearest one above the shell that serves SSH; where there is none the time alone decides.
const lockScript = `umask 022; LC_ALL=C; export LC_ALL
root=%[1]s; me=%[2]s; run=%[3]s; fleet=%[4]s
mkdir -p "$root" || exit 4
f=$root/install.lock; turn=$root/.install.turn; t=$turn/$$; k=0
until mkdir "$turn" 2>/dev/null; do k=$((k+1)); [ "$k" -ne 50 ] || { rm -f "$turn"/*; rmdir "$turn"; } 2>/dev/null; [ "$k" -lt 80 ] || { echo "cannot write below $root" >&2; exit 4; }; sleep 0.1; done
trap 'rm -f "$t"; rmdir "$turn"' EXIT
boot=-; if [ -r /proc/sys/kernel/random/boot_id ]; then read -r boot </proc/sys/kernel/random/boot_id; fi
look() { s=; { IFS= read -r s <"/proc/$1/stat"; } 2>/dev/null || return 1; c=${s#*"("}; c=${c%%")"*}; s=${s##*")"}; set -- $s; parent=$2 ticks=${20}; }
pid=- began=-; q=$$
while [ "$q" -gt 1 ] && look "$q"; do
  case $c in sshd*|dropbear*) pid=$q began=$ticks; break;; esac
  q=$parent
done
now=$(date +%%s); state=taken why=; i= r= e=0 b= p= s0= w= a=
if [ -e "$f" ]; then
  { read -r i; read -r r; read -r e; read -r b; read -r p; read -r s0; read -r w; read -r a; } <"$f"
  case $e in ''|*[!0-9]*) e=0;; esac
  case $p in ''|*[!0-9]*) p=-;; esac
  if [ "$i" = "$me" ]; then state=again
  elif [ "$e" -le "$now" ]; then state=over why='its time is over'
  elif [ "$b" != - ] && [ "$boot" != - ] && [ "$b" != "$boot" ]; then state=over why='the host was started anew'
  elif [ "$p" != - ] && [ "$boot" != - ] && { ! look "$p" || [ "$ticks" != "$s0" ]; }; then state=over why='its connection has ended'
  else state=held
  fi
fi
printf 'state %%s\nwhy %%s\n' "$state" "$why"
if [ "$state" = held ] || [ "$state" = over ]; then
  printf 'run %%s\nuntil %%s\nboot %%s\nprocess %%s\nticks %%s\nfleet %%s\nfrom %%s\n' "$r" "$e" "$b" "$p" "$s0" "$w" "$a"
fi
if [ "$state" != held ]; then
  a=${SSH_CONNECTION%%%% *}
  printf '%%s\n%%s\n%%s\n%%s\n%%s\n%%s\n%%s\n%%s\n' "$me" "$run" "$((now+%[5]d))" "$boot" "$pid" "$began" "$fleet" "${a:--}" >"$t" && mv -f "$t" "$f" || exit 4
fi
echo end
`

const unlockScript = `f=%[1]s; i=; { read -r i; } <"$f" 2>/dev/null; if [ "$i" = %[2]s ]; then rm -f "$f"; fi`

// lockFaults are what the answer to the lock says: held by another, or taken from one.
func lockFaults(data []byte) []record.Finding {
	a, whole := readAnswer(data)
	state := a.one("state")
	owner := fmt.Sprintf("run %.64s of fleet %.64s from %.64s, process %.20s with start ticks %.20s of boot %.40s", printable(a.one("run")), printable(a.one("fleet")),
		printable(a.one("from")), printable(a.one("process")), printable(a.one("ticks")), printable(a.one("boot")))
	switch {
	case !whole, state != "taken" && state != "again" && state != "over" && state != "held":
		return []record.Finding{cut("take the lock of the root")}
	case state == "held":
		return []record.Finding{{Code: "install-locked", Want: "one installation at a time below one root", Got: owner, Message: "another installation holds the root: " + owner,
			Hint: "wait until that run ends; two fleets want a root each; after a crash that the host cannot see, remove " + lockName + " below the root"}}
	case state == "over":
		why := printable(a.one("why"))
		return []record.Finding{{Code: "install-lock-taken-over", Want: "a root that nobody held", Got: owner, Message: "took the root's lock from " + owner + ": " + why, Note: true,
			Hint: "nothing to do: " + why}}
	}
	return nil
}

// holds fails when the lock below a root is not the holder's any more.
func holds(root, holder string) error {
	b, err := os.ReadFile(filepath.Join(root, lockName))
	if err != nil {
		return fmt.Errorf("switch release: the lock of the root is gone: %w", err)
	}
	if owner, _, _ := strings.Cut(string(b), "\n"); owner != holder {
		return fmt.Errorf("switch release: the lock of the root was taken by %.64q; narwhal gate run --again B once that installation has ended", owner)
	}
	return nil
}
