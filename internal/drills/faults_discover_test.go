package drills

// hostFaults are what gate A sees of hosts that run simulated engines.
var hostFaults = []fault{
	{id: "disk-small", where: "host tool output", how: "df tells 1 MiB free", do: tool(1, "df", `printf 'Filesystem 1024-blocks Used Available Capacity Mounted on\n/dev/x 100000 98976 1024 99%% /\n'`), code: "disk-space", exit: 1, hint: "min_disk_free", quick: true},
	{id: "disk-limit", where: "fleet file", how: "asks for more space than hosts have", do: set("900TiB", "deploy", "policy", "min_disk_free"), code: "disk-space", exit: 1, hint: "free space"},
	{id: "df-localized", where: "host tool output", how: "df writes decimal commas and other words", do: tool(1, "df", `printf 'Dateisystem 1K-Blöcke Benutzt Verfügbar Verw%% Eingehängt auf\n/dev/x 100,0G 98,0G 2,0G 98%% /\n'`), code: "disk-space", exit: 1},
	{id: "df-broken", where: "host tool output", how: "df fails", do: tool(1, "df", `echo "df: cannot read table of mounted file systems" >&2; exit 1`), code: "disk-space", exit: 1},
	{id: "df-huge", where: "host tool output", how: "df tells more digits than a number holds", do: tool(1, "df", `printf 'Filesystem x\n/dev/x 1 1 99999999999999999999999999 1%% /\n'`), code: "disk-space", exit: 1},
	{id: "df-negative", where: "host tool output", how: "df tells negative space", do: tool(1, "df", `printf 'Filesystem x\n/dev/x 1 1 -99999999 1%% /\n'`), code: "disk-space", exit: 1},
	{id: "uname-other", where: "host tool output", how: "the host is of another architecture", do: tool(1, "uname", `echo "Linux host-2 6.1.0 riscv64"`), code: "host-architecture", exit: 1, hint: "deploy.release.binary"},
	{id: "uname-os", where: "host tool output", how: "the host has another system", do: tool(1, "uname", `echo "FreeBSD host-2 14.1 amd64"`), code: "host-architecture", exit: 1, hint: "deploy.release.binary"},
	{id: "uname-silent", where: "host tool output", how: "uname says nothing", do: tool(1, "uname", `exit 0`), code: "host-unreadable", exit: 1},
	{id: "root-file", where: "file on host", how: "the folder of the root is closed", do: filter(1, `sed 's/^writable$/read-only/'`), code: "root-not-writable", exit: 1, hint: "root"},
	{id: "files-absent", where: "file on host", how: "a named file is not there", do: set([]any{"/no/such/tokenizer.json"}, "deploy", "hosts", "host-2", "files"), code: "file-absent", exit: 1, hint: "files", quick: true},
	{id: "files-folder", where: "file on host", how: "a folder has the name of a file", do: set([]any{"/tmp"}, "deploy", "hosts", "host-2", "files"), code: "file-absent", exit: 1, hint: "files"},
	{id: "files-differ", where: "host tool output", how: "two hosts hold different bytes under one path", do: both(
		set([]any{"/etc/hosts"}, "deploy", "hosts", "host-1", "files"), set([]any{"/etc/hosts"}, "deploy", "hosts", "host-2", "files"),
		tool(1, "openssl", `cat >/dev/null; echo "$(printf '%064d' 7) *stdin"`)), code: "replica-differs", exit: 1, hint: "copy the same file"},
	{id: "files-digest-short", where: "host tool output", how: "openssl and sha256sum print half a digest", do: both(
		set([]any{"/etc/hosts"}, "deploy", "hosts", "host-2", "files"),
		tool(1, "openssl", `cat >/dev/null; echo "abcdef *stdin"`), tool(1, "sha256sum", `cat >/dev/null; echo "abcdef -"`)), code: "file-absent", exit: 1},
	{id: "clock-ahead", where: "clock", how: "the host's clock is an hour ahead", do: tool(1, "date", `echo "$(( $(/bin/date +%s) + 3600 )).5"`), code: "clock-offset", exit: 1, hint: "time server", quick: true},
	{id: "clock-behind", where: "clock", how: "the host's clock is a minute behind", do: tool(1, "date", `echo "$(( $(/bin/date +%s) - 60 )).5"`), code: "clock-offset", exit: 1, hint: "time server"},
	{id: "clock-1970", where: "clock", how: "the host's clock was never set", do: tool(1, "date", `echo 42`), code: "clock-offset", exit: 1, hint: "time server"},
	{id: "clock-far", where: "clock", how: "the host's clock is in the year 5138", do: tool(1, "date", `echo 99999999999.0`), code: "clock-offset", exit: 1},
	{id: "clock-words", where: "host tool output", how: "date answers in words", do: tool(1, "date", `echo "Mo 30. Nov 06:04:35 UTC 2026"`), code: "step-failed", exit: 4},
	{id: "clock-nan", where: "host tool output", how: "date answers NaN", do: tool(1, "date", `echo NaN`), code: "step-failed", exit: 4},
	{id: "clock-slow", where: "host tool output", how: "date takes longer than its answer may be wrong", do: both(set("500ms", "deploy", "policy", "max_clock_offset"), tool(1, "date", `sleep 1.2; exec /bin/date "$@"`)), code: "clock-offset", exit: 1},
	{id: "fabric-interface", where: "fleet file", how: "names an interface that hosts do not have", do: set("mlx9", "deploy", "fabric", "interface"), code: "fabric-interface", exit: 1, hint: "deploy.fabric.interface"},
	{id: "fabric-address", where: "fleet file", how: "gives a host an address that it does not have", do: set("203.0.113.9", "deploy", "hosts", "host-2", "fabric_address"), code: "fabric-address", exit: 1, hint: "fabric_address"},
	{id: "fabric-down", where: "host tool output", how: "the fabric's interface is down", do: both(set("lo", "deploy", "fabric", "interface"), filter(1, `sed 's/^lo|\([0-9]*\)|[a-z]*|1/lo|\1|down|0/'`)), code: "fabric-down", exit: 1, hint: "cable"},
	{id: "fabric-half", where: "host tool output", how: "the fabric's interface negotiated half duplex", do: both(set("lo", "deploy", "fabric", "interface"), filter(1, `sed 's/^lo|.*/lo|65536|up|1|100|half|||/'`)), code: "fabric-duplex", exit: 1, hint: "negotiate"},
	{id: "fabric-mtu", where: "host tool output", how: "one host has a smaller MTU", do: both(set("lo", "deploy", "fabric", "interface"), filter(1, `sed 's/^lo|65536/lo|1500/'`)), code: "fabric-mtu", exit: 1, hint: "MTU"},
	{id: "fabric-speed", where: "host tool output", how: "one host's link came up slower", do: both(set("lo", "deploy", "fabric", "interface"), filter(0, `sed 's/^lo|.*/lo|65536|up|1|100000|full|||/'`), filter(1, `sed 's/^lo|.*/lo|65536|up|1|25000|full|||/'`)), code: "fabric-speed", exit: 1, hint: "slower end"},
	{id: "fabric-bond", where: "host tool output", how: "a member of the bond is down", do: both(set("lo", "deploy", "fabric", "interface"), filter(1, `sed 's/^== addresses$/bond lo\nBonding Mode: fault-tolerance (active-backup)\nCurrently Active Slave: a\nMII Status: up\nSlave Interface: a\nMII Status: up\nSlave Interface: b\nMII Status: down\n== addresses/'`)), code: "fabric-bond", exit: 1, hint: "bonding"},
	{id: "network-cut", where: "host tool output", how: "the answer about interfaces ends in the middle", do: filter(1, `awk '/^== links/{cut=1} {print} cut&&/^lo/{exit}'`), code: "host-unreadable", exit: 1, hint: "again A"},
	{id: "end-twice", where: "host tool output", how: "an answer ends and goes on", do: filter(1, `cat; echo "== disk"; echo "/dev/x 1 1 999999999 1% /"; echo writable`), code: "host-unreadable", exit: 1},
}
