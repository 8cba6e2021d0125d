package install

import (
	"encoding/json"
	"fmt"
	"path"
	"strings"

	"github.com/narwhal-fleet/narwhal/fleet/remote"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/record"
)

// trustDir is the folder below a root with the public keys whose releases may run there.
const trustDir = "trust"

// proofProbe lets the release run once the host has computed its digest and, where the fleet
// names trusted keys, verified the operator's statement about it. The first installation
// leaves those keys on the host; later ones verify with what lies there. A signature that is
// refused leaves the mode as it is: the same release may run already, for those who signed it.
func proofProbe(root, release string, v gates.View) string {
	var pins strings.Builder
	for i, k := range v.Release.Trust {
		fmt.Fprintf(&pins, "printf '%%s\\n' %s >\"$t/key-%d.pem\" && ", remote.Quote(strings.TrimSpace(k)), i+1)
	}
	request, err := json.Marshal(SwitchRequest{Root: root, Release: release})
	if err != nil {
		panic(fmt.Sprintf("marshal request: %v", err)) // plain data always marshals
	}
	return fmt.Sprintf(proofScript, remote.Quote(path.Clean(root)), release, trusts(v), pins.String(), PredicateRelease, remote.Quote(string(request)))
}

// trusts reports whether the fleet names keys, so that hosts ask for a signature.
func trusts(v gates.View) bool { return len(v.Fleet.Deploy.Sign.Trust) > 0 }

const proofScript = `umask 022; LC_ALL=C; export LC_ALL
root=%[1]s; want=%[2]s; d=$root/releases/$want; b=$d/narwhal; k=$root/trust
have() { command -v "$1" >/dev/null 2>&1; }
how=none got=-
if have sha256sum; then how=sha256sum got=$(sha256sum <"$b"); elif have shasum; then how=shasum got=$(shasum -a 256 <"$b"); elif have openssl; then how=openssl got=$(openssl dgst -sha256 -r <"$b"); fi
got=${got%%%% *}
echo "digest $how ${got:--}"
refuse() { echo "runs no"; echo end; exit 0; }
if [ "$how" != none ] && [ "$got" != "$want" ]; then chmod a-x "$b"; refuse; fi
if %[3]t; then
  if [ -d "$k" ]; then echo "trust held"; else t=$k.$$; mkdir -p "$t" && %[4]s mv "$t" "$k" && echo "trust pinned"; fi
  sig=unchecked by='the host has neither openssl nor a release that can'
  if have openssl; then
    rm -rf "$d"/.proof.*
    w=
    trap 'rm -rf "$w"' EXIT
    trap 'exit 4' HUP INT PIPE TERM
    w=$(mktemp -d "$d/.proof.XXXXXX") || exit 4
    sed -n 's/.*"payload":"\([A-Za-z0-9+/=]*\)".*/\1/p' "$d/release.json" | openssl base64 -d -A >"$w/p"
    sed -n 's/.*"sig":"\([A-Za-z0-9+/=]*\)".*/\1/p' "$d/release.json" | openssl base64 -d -A >"$w/s"
    n=$(wc -c <"$w/p"); { printf 'DSSEv1 28 application/vnd.in-toto+json %%d ' "$((n))"; cat "$w/p"; } >"$w/m"
    sig=bad by='no key below trust has signed it'
    for q in "$k"/*.pem; do
      [ -f "$q" ] || continue
      if openssl dgst -sha256 -verify "$q" -signature "$w/s" "$w/m" >/dev/null 2>&1 || openssl pkeyutl -verify -pubin -inkey "$q" -rawin -in "$w/m" -sigfile "$w/s" >/dev/null 2>&1; then sig=good by="openssl with ${q##*/}"; break; fi
    done
    if [ "$sig" = good ] && { ! grep -qF '"predicateType":"%[5]s"' "$w/p" || ! grep -qF "\"sha256\":\"$want\"" "$w/p"; }; then sig=bad by='what is signed is not this release'; fi
  elif [ -x "$root/current/narwhal" ]; then
    case $("$root/current/narwhal" host check-release %[6]s 2>/dev/null) in
    *'"signature":"good"'*) sig=good by='the release before';;
    *'"signature":"bad"'*) sig=bad by='the release before';;
    esac
  fi
  echo "signature $sig $by"
  if [ "$sig" = bad ]; then refuse; fi
fi
chmod 755 "$b" && echo "runs yes" && echo end
`

// proofFaults are what a host says against the release. With trust a signature is wanted.
func proofFaults(data []byte, release string, trust bool) []record.Finding {
	a, whole := readAnswer(data)
	how, digest, _ := strings.Cut(a.one("digest"), " ")
	signature, by, _ := strings.Cut(a.one("signature"), " ")
	digest, by = fmt.Sprintf("%.64s", printable(digest)), fmt.Sprintf("%.200s", printable(by))
	switch {
	case how != "" && how != "none" && digest != release:
		return []record.Finding{{Code: "release-digest", Want: release, Got: digest, Message: fmt.Sprintf("what lies on the host has digest %.12s, want %.12s: it was not let run", digest, release),
			Hint: "somebody changed it after it was sent, or the disk did: narwhal gate run --again B sends it anew"}}
	case trust && signature == "bad":
		return []record.Finding{{Code: "release-signature", Want: "a statement by a key that the host trusts", Got: by, Message: "the host does not accept the release: " + by,
			Hint: "sign with a key of " + trustDir + " below the root (deploy.sign.key); to trust another one from now on, put its public half there"}}
	case !whole, a.one("runs") != "yes", trust && signature != "good" && signature != "unchecked":
		return []record.Finding{cut("prove the release")}
	case trust && signature == "unchecked":
		return []record.Finding{{Code: "release-signature-unchecked", Want: "a signature that the host verifies before the release runs", Got: "its digest alone", Note: true,
			Message: "the host verified the digest, not the signature: " + by, Hint: "install openssl on the host, then narwhal gate run --again B"}}
	}
	return nil
}
