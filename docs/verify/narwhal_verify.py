#!/usr/bin/env python3
"""Verifies a record of narwhal, from docs/record-format.md alone.

Needs Python 3.8 and the openssl command; no network, no fleet file, no narwhal.
Usage: narwhal_verify.py [--trust KEY.pub]... RUNDIR
Prints one JSON object. Exit: 0 the record holds, 8 it does not, 2 the arguments are wrong.
"""
import argparse, base64, hashlib, itertools, json, os, re, stat, subprocess, sys, tempfile
from urllib.parse import quote

MAX_LINE, MAX_LOG, MAX_OBJECT = 64 << 10, 256 << 20, 256 << 20
GATES, MEMBERS = "ABCDEFG", ["seq", "time", "kind", "prev", "gate", "step", "host", "body"]
KINDS = set("run.created run.resumed run.interrupted repair facts gate.started plan intent outcome resolved evidence "
            "stale verdict seal undone rollback.started rollback.step rollback.done replacement.started replacement.step replacement.done note".split())
PREDICATE = "https://github.com/narwhal-fleet/narwhal/%s/v1"
DIGEST, NAME = re.compile(r"[0-9a-f]{64}\Z"), re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")
TIME, STRING = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d*[1-9])?Z\Z"), re.compile(r'"(?:[^"\\]|\\.)*"')
EVIDENCE = {  # what a passed gate rests on: kind of evidence → its subjects
    "A": {"A/inputs": "", "A/host": "work-host", "A/clock": "work-host", "A/network": "work-host", "A/hardware": "engine-host"},
    "B": {"B/manifest": "", "B/ground": "work-host", "B/lock": "work-host", "B/proof": "work-host", "B/release": "work-host", "B/files": "work-host", "B/key": "work-host"},
    "C": {"C/ports": "engine", "C/launch": "engine", "C/listener": "engine", "C/live": "engine", "C/cache": "engine"},
    "D": {"D/budget": "", "D/pair": "host-pair"},
    "E": {"E/observed": "engine", "E/sidecar": "engine", "E/statement": "engine"},
    "F": {"F/engine": "engine", "F/abort": "engine", "F/profile": "engine", "F/pair": "engine-pair", "F/store": ""},
    "G": {"G/drain": "", "G/drain-standby": "standby", "G/router": "", "G/ready": "", "G/standby": "standby", "G/standing": "standby", "G/monitoring-check": "monitoring", "G/monitoring-files": "monitoring", "G/monitoring": "monitoring", "G/trial": "", "G/journal": "", "G/ring": "", "G/acceptance": "", "G/bundle": ""},
}

class Bad(Exception): pass
WRONG = (Bad, OSError, KeyError, TypeError, ValueError, AttributeError)

def sha(data): return hashlib.sha256(data).hexdigest()
def must(holds, message):
    if not holds:
        raise Bad(message)

def unique(pairs): return dict(pairs) if len(dict(pairs)) == len(pairs) else must(False, "a key comes twice")

def parse(text, pairs=None):
    try:
        text = text.decode() if isinstance(text, bytes) else text
        return json.loads(text, object_pairs_hook=pairs, parse_constant=lambda w: must(False, w))
    except (ValueError, RecursionError) as e:
        raise Bad("not JSON: %s" % e)

def read(path, limit):
    """The bytes of a small regular file; links, pipes and devices are refused."""
    must(stat.S_ISREG(os.lstat(path).st_mode), "not a regular file")
    with open(path, "rb") as f:
        data = f.read(limit + 1)
    must(len(data) <= limit, "longer than %d bytes" % limit)
    return data

def exact(tree, required, optional=()):
    must(set(required) <= set(tree) <= set(required) | set(optional), "other members than %s" % ", ".join(required))
    return tree

def base64_of(text):
    raw = base64.b64decode(text, validate=True)
    must(base64.b64encode(raw).decode() == text, "not canonical base64")
    return raw

def openssl(*args): return subprocess.run(["openssl", *args], stdin=subprocess.DEVNULL, capture_output=True)

class Key:
    def __init__(self, path):
        self.path, der = path, openssl("pkey", "-pubin", "-in", path, "-outform", "DER")
        must(not der.returncode, "%s holds no public key in PEM" % path)
        self.hint = base64.b64encode(hashlib.sha256(der.stdout).digest()).decode()
        self.raw = b"\x06\x03\x2b\x65\x70" in der.stdout[:16]  # Ed25519 signs the bytes, not their digest

    def verifies(self, message, signature):
        with tempfile.NamedTemporaryFile() as m, tempfile.NamedTemporaryFile() as s:
            m.write(message), s.write(signature), m.flush(), s.flush()
            raw = "pkeyutl", "-verify", "-pubin", "-inkey", self.path, "-rawin", "-in", m.name, "-sigfile", s.name
            return not openssl(*raw if self.raw else ("dgst", "-sha256", "-verify", self.path, "-signature", s.name, m.name)).returncode

def statement(bundle, keys):
    """The in-toto statement of a bundle whose signature a trusted key made."""
    top = exact(parse(bundle, unique), ["mediaType", "verificationMaterial", "dsseEnvelope"])
    must(top["mediaType"] == "application/vnd.dev.sigstore.bundle.v0.3+json", "other media type")
    material = exact(top["verificationMaterial"], ["publicKey"], ["tlogEntries", "timestampVerificationData"])
    envelope = exact(top["dsseEnvelope"], ["payload", "payloadType", "signatures"])
    hint = exact(material["publicKey"], ["hint"])["hint"]
    must(envelope["payloadType"] == "application/vnd.in-toto+json" and len(envelope["signatures"]) == 1, "not one signed statement")
    signed = exact(envelope["signatures"][0], ["sig"], ["keyid"])
    must(signed.get("keyid", "") in ("", hint), "the signature names another key than the bundle")
    key = next((k for k in keys if k.hint == hint), None)
    must(key, "signed by a key that is not trusted")
    payload, kind = base64_of(envelope["payload"]), envelope["payloadType"].encode()
    message = b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)
    must(key.verifies(message, base64_of(signed["sig"])), "the signature does not fit")
    st = exact(parse(payload, unique), ["_type", "subject", "predicateType", "predicate"])
    must(st["_type"] in ("https://in-toto.io/Statement/v1", "https://in-toto.io/Statement/v0.1"), "not an in-toto statement")
    return st

def expected(gate, fleet):
    """The keys of the evidence that a passed gate of this fleet has."""
    deploy = fleet.get("deploy") or {}
    router, engines = deploy.get("router") or {}, [e["iid"] for e in fleet.get("engines") or []]
    carry = {(deploy.get("engines") or {}).get(e, {}).get("host", "") for e in engines} - {None, ""}
    standby, lease, watch = router.get("standby") or {}, router.get("lease") or {}, deploy.get("monitoring")
    on = standby and (lease.get("path") or lease.get("etcd"))
    work = (carry | {router.get("host"), standby.get("host"), (watch or {}).get("host")}) - {None, ""}
    subjects = {
        "": [()], "standby": [()] if on else [], "monitoring": [()] if watch is not None else [], "engine": [(e,) for e in engines], "work-host": [(h,) for h in work],
        "engine-host": [(h,) for h in carry], "engine-pair": itertools.permutations(engines, 2), "host-pair": itertools.combinations(sorted(carry), 2)}
    return ["/".join([kind] + [quote(s, safe="$&+:=@") for s in parts])
            for kind, of in EVIDENCE.get(gate, {}).items() for parts in list(subjects[of])]

class Record:
    def __init__(self, root, keys):
        self.root, self.keys, self.problems, self.notices = root, keys, [], []
        self.refs, self.torn, self.mirrors, self.gates, self.digests = {}, {}, {}, {}, {}
        self.run, self.fleet, self.seals, self.events, self.worked = "", "", 0, 0, {}

    def say(self, code, where, message): self.problems.append({"code": code, "where": where, "message": str(message)})

    def load(self, ref, path=None):
        data = read(os.path.join(self.root, path or "objects/" + ref["sha256"]), MAX_OBJECT)
        must(sha(data) == ref["sha256"] and len(data) == ref["bytes"], "its bytes are not the recorded ones")
        return data

    def verify(self):
        log = b""
        try:
            log = read(os.path.join(self.root, "log.jsonl"), MAX_LOG)
        except (OSError, Bad) as e:
            self.say("log", "log.jsonl", e)
        prev, seq, rows = "0" * 64, 0, log.split(b"\n")
        if rows.pop():
            self.say("torn", "log.jsonl", "the last line is unfinished")
        for n, row in enumerate(rows, 1):
            where, seq, before, prev = "line %d" % n, seq + 1, prev, sha(row)
            try:
                ev = self.line(row)
            except WRONG as e:
                self.say("line", where, e)
                continue
            if ev["seq"] != seq or ev["prev"] != before or (ev["kind"] == "run.created") != (ev["seq"] == 1):
                self.say("chain", where, "it does not follow the line before")
            seq = ev["seq"]
            self.digests[seq], self.events = prev, self.events + 1
            self.references(ev["body"], where)
            try:
                self.fold(ev, where)
            except WRONG as e:
                self.say("line", where, "%s: %r" % (ev["kind"], e))
        if not self.events: self.say("log", "log.jsonl", "no event could be read")
        self.files()

    def line(self, row):
        text = row.decode()
        mark = text.rfind(',"sum":"')
        must(len(row) <= MAX_LINE and text[mark:] == ',"sum":"%s"}' % sha(text[:mark].encode()), "its bytes do not match its sum")
        ev = parse(text[:mark] + "}")
        must(list(ev) == [m for m in MEMBERS if m in ev] and ev["kind"] in KINDS and isinstance(ev["body"], dict), "other members than a line has")
        head = json.dumps({k: v for k, v in ev.items() if k != "body"}, ensure_ascii=False, separators=(",", ":"))[:-1] + ',"body":'
        head = head.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
        odd = "" in (ev.get(m) for m in ("gate", "step", "host")) or re.search(r"\s", STRING.sub("", text))
        must(text.startswith(head) and TIME.match(ev["time"]) and not odd, "not in the one form")
        return ev

    def references(self, tree, where):
        for v in tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ():
            self.references(v, where)
        kinds = isinstance(tree, dict) and tuple(type(tree.get(m)) for m in ("sha256", "media", "bytes"))
        if kinds in ((str, str, int), (str, str, float)):
            old = self.refs.setdefault(tree["sha256"], tree)
            if not DIGEST.match(tree["sha256"]) or not 0 <= tree["bytes"] <= MAX_OBJECT or old["bytes"] != tree["bytes"]:
                self.say("reference", where, "it names no object")
                del self.refs[tree["sha256"]]

    def gate(self, letter): return self.gates.setdefault(letter, {"state": "pending", "evidence": {}, "seal": None})

    def fold(self, ev, where):
        kind, b, gate = ev["kind"], ev["body"], ev.get("gate", "")
        if kind in ("gate.started", "plan", "intent", "outcome", "evidence", "verdict", "seal") and gate not in ("", "rollback"):
            self.worked[gate] = ev["seq"]
        if kind == "run.created":
            self.run, self.fleet, self.mirrors["fleet.json"] = b["run"], b["fleet_name"], b["fleet"]
        elif kind == "plan" and not gate:
            self.mirrors["plan.json"] = b["object"]
        elif kind == "repair": self.torn[b["file"]] = {"sha256": b["dropped_sha256"], "bytes": b["dropped_bytes"]}
        elif kind == "gate.started": self.gate(gate).update(state="running", seal=None)
        elif kind == "evidence":
            self.gate(b["key"].split("/")[0])["evidence"][b["key"]] = (b["ref"], b.get("bonds") or {})
        elif kind == "stale":
            g = self.gate(b["key"].split("/")[0])
            g["evidence"].pop(b["key"], None)
            g["state"] = "stale" if g["state"] == "passed" else g["state"]
        elif kind == "undone":
            g = self.gate(b["key"].split("/")[0] if b.get("key") else gate)
            g["state"] = "undone"
            if b.get("key"): g["evidence"].pop(b["key"], None)
            elif not b.get("step") and not b.get("intent"): g["evidence"].clear()
        elif kind == "rollback.done":
            for g in (self.gate(letter) for letter in b.get("rerun") or []):
                g["evidence"].clear()
                g["state"] = "pending" if g["state"] == "pending" else "undone"
        elif kind == "verdict": self.verdict(gate, ev["seq"], b, where)
        elif kind == "seal": self.seal(gate, ev["seq"], b, where)

    def verdict(self, gate, at, b, where):
        g, inputs = self.gate(gate), self.gate("A")["evidence"].get("A/inputs")
        g["at"], g["state"], found = at, b["state"], [f for f in b.get("findings") or [] if not f.get("note")] or b["state"] == "failed" and b.get("object")
        if gate not in EVIDENCE:
            self.say("verdict_unknown", where, "no such gate: %r" % gate)
        if (b["state"], bool(found)) in (("failed", False), ("passed", True)):
            self.say("verdict_differs", where, "gate %s: %s does not go with its findings" % (gate, b["state"]))
        fleet = parse(self.load(inputs[0]))["fleet"] if inputs else parse(self.load(self.mirrors["fleet.json"]))
        listed = [] if b.get("expects") is None else parse(self.load(b["expects"]))
        if listed != sorted(set(listed)) or not all(key.startswith(gate + "/") for key in listed):
            self.say("verdict_differs", where, "gate %s: what it expects is not a sorted list of its keys" % gate)
        for key in sorted({*expected(gate, fleet), *listed}) if b["state"] == "passed" else ():
            if key not in g["evidence"]:
                self.say("verdict_differs", where, "gate %s passed without %s" % (gate, key))

    def seal(self, name, at, b, where):
        if self.digests.get(b["seq"]) != b["digest"] or b["seq"] >= at or not NAME.match(name):
            self.say("seal", where, "it names a line that the log does not have")
        letter = self.gate(name) if len(name) == 1 else None
        before = GATES[GATES.index(name) - 1] if name in GATES[1:] else None
        previous = self.gate(before)["seal"] if before else None
        try:
            st = statement(self.load(b["ref"]), self.keys)
            p, subject = st["predicate"], st["subject"]
            kind = "rollback" if name == "rollback" else "gate"
            said = st["predicateType"], p["run"], p["fleet"], p["seq"]
            must(said == (PREDICATE % kind, self.run, self.fleet, b["seq"]), "it speaks of another run, fleet or line")
            named = (subject[0].get("name"), subject[0]["digest"].get("sha256"))
            must(len(subject) == 1 and named == ("%s/log.jsonl#%d" % (self.run, b["seq"]), b["digest"]), "its subject is another line")
            if kind == "gate":
                listed = [dict({"key": k, "sha256": r["sha256"]}, **({"bonds": bonds} if bonds else {}))
                          for k, (r, bonds) in sorted(letter["evidence"].items(), key=lambda e: e[0].encode())] if letter else None
                said = (p["gate"], p["verdict"], p.get("previous", ""), p["evidence"])
                must(said == (name, "passed", previous or "", listed), "it lists another gate, verdict, evidence or seal before")
            self.seals += 1
        except WRONG as e:
            self.say("seal_unverified", where, "seal of %s: %s" % (name, e))
        self.mirrors["seals/%s.sigstore.json" % name] = b["ref"]
        if letter:
            letter["seal"] = b["ref"]["sha256"]

    def files(self):
        """Every file that the log names is there with its bytes, and no other."""
        named = {os.path.join("objects", d): r for d, r in self.refs.items()}
        named.update(self.mirrors)
        named.update({f: r for f, r in self.torn.items() if re.match(r"torn-[^/]*\.bin\Z", f)})
        seen = {"log.jsonl"} | set(named)
        for path, ref in sorted(named.items()):
            try:
                self.load(ref, path)
            except FileNotFoundError:
                self.say("missing", path, "the log names it, and it is not there")
            except (OSError, Bad) as e:
                self.say("digest", path, e)
        folder = lambda path: os.path.isdir(os.path.join(self.root, path)) and not os.path.islink(os.path.join(self.root, path))
        for sub in [f for f in ("", "objects", "seals") if not f or folder(f)]:
            for name in sorted(os.listdir(os.path.join(self.root, sub))):
                path = os.path.join(sub, name)
                if path in seen or name.startswith(".atomic-") or path in ("objects", "seals") and folder(path):
                    continue
                try:
                    must(sub == "objects" and DIGEST.match(name), "nothing in the log explains it")
                    must(sha(read(os.path.join(self.root, path), MAX_OBJECT)) == name, "its name is not its digest")
                    self.notices.append("%s: no line names it" % path)
                except (OSError, Bad) as e:
                    self.say("unknown_file", path, e)
        for letter, g in sorted(self.gates.items()):
            if g["state"] == "passed" and not g["seal"]:
                on = self.keys and any(n > g["at"] for x, n in self.worked.items() if x != letter)
                text = "gate %s passed and is not signed%s" % (letter, ", although the run went on" if on else ": nobody vouches for it")
                self.say("unsealed", "log.jsonl", text) if on else self.notices.append(text)

def main():
    args = argparse.ArgumentParser(description="Verifies a record of narwhal offline")
    args.add_argument("--trust", action="append", default=[], metavar="KEY.pub")
    args.add_argument("run")
    a = args.parse_args()
    with tempfile.NamedTemporaryFile() as own:
        try:
            keys = [Key(k) for k in a.trust]
            must(os.path.isdir(a.run), "%s is no folder" % a.run)
        except Bad as e:
            args.error(str(e))
        try:  # without --trust, the key that the record itself names
            with open(os.path.join(a.run, "log.jsonl"), "rb") as log:
                own.write(parse(log.readline(MAX_LINE))["body"]["operator"].encode()), own.flush()
            keys = keys or [Key(own.name)]
        except WRONG:
            pass
        r = Record(a.run, keys)
        r.verify()
    print(json.dumps({"run": r.run, "events": r.events, "objects": len(r.refs), "seals": r.seals, "problems": r.problems, "notices": r.notices}, indent=1))
    return 8 if r.problems else 0

if __name__ == "__main__":
    sys.exit(main())
