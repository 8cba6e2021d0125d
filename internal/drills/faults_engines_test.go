package drills

import "os"

// sim changes the launch of e1 alone: a launch of its own, like the other one but for that.
func sim(change func(launch, params object)) func(*scene) {
	return func(s *scene) {
		l := parse(s.t, text(s.t, s.deploy("launch", "simulated")))
		change(l, sub(l, "simulated"))
		s.deploy("launch")["other"] = l
		s.deploy("engines", "e1")["launch"] = "other"
	}
}

func param(name string, value any) func(*scene) {
	return sim(func(_, p object) { p[name] = value })
}

// program makes engines a program of their hosts, which a drill writes.
func program(script string) func(*scene) {
	return both(tool(0, "vllm", script), tool(1, "vllm", script), func(s *scene) {
		s.deploy("launch")["other"] = object{"kind": "process", "argv": []any{"vllm", "serve", "--port", "{port}"}, "ready_within": "3s", "stop_within": "2s"}
		s.deploy("defaults")["launch"] = "other"
	})
}

// server is a program that answers HTTP with fixed bodies, in the host's own words.
func server(health, version, models, metrics, completion string) string {
	return `exec python3 - "$@" <<'EOF'
import http.server, sys
port = int(sys.argv[sys.argv.index("--port") + 1])
answers = {"/health": ` + quoted(health) + `, "/version": ` + quoted(version) + `, "/v1/models": ` + quoted(models) + `, "/metrics": ` + quoted(metrics) + `, "/v1/completions": ` + quoted(completion) + `}
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        b = answers.get(self.path.split("?")[0])
        if b is None:
            self.send_error(404); return
        self.send_response(200); self.send_header("Content-Length", str(len(b))); self.end_headers(); self.wfile.write(b)
    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0))); self.do_GET()
http.server.ThreadingHTTPServer(("127.0.0.1", port), H).serve_forever()
EOF`
}

func quoted(s string) string { return `b'''` + s + `'''` }

const notReady = "engine-not-ready"

// engineFaults are between an installed fleet and engines that answer alike.
var engineFaults = []fault{
	{id: "port-http", stage: "B", where: "port", how: "somebody holds the engine's port", do: taken(portEngine, 1), code: "port-taken", exit: 1, hint: "ss -ltnp", quick: true},
	{id: "port-side", stage: "B", where: "port", how: "somebody holds the side channel's port", do: taken(portSide, 1), code: "port-taken", exit: 1, hint: "ss -ltnp"},
	{id: "port-both-hosts", stage: "B", where: "port", how: "an old engine serves on each host", do: both(taken(portEngine, 0), taken(portEngine, 1)), code: "port-taken", exit: 1, hint: "ss -ltnp"},
	{id: "engine-slow", stage: "B", where: "process", how: "an engine takes longer than it may", do: sim(func(l, p object) { l["ready_within"], p["start_s"] = "500ms", 600.0 }), code: notReady, exit: 1},
	{id: "engine-version", stage: "B", where: "process", how: "one engine has another version", do: param("engine_version", "0.9.9"), code: "versions-differ", exit: 1, hint: "alike", quick: true},
	{id: "engine-contract", stage: "B", where: "fleet file", how: "engines have another version than the contract", do: set(object{"engine_version": "9.9.9", "connector": "NixlConnector"}, "engine_contract"), code: "version-differs", exit: 1, hint: "engine_contract"},
	{id: "engine-block", stage: "B", where: "process", how: "one engine has blocks of another size", do: param("block_size", 32), code: "invalid_fleet", exit: 2, says: "block_size"},
	{id: "engine-model", stage: "B", where: "fleet file", how: "the fleet names another model than engines serve", do: program(server("", `{"version":"0.32.0"}`, `{"object":"list","data":[{"id":"other-model","object":"model","root":"/m"}]}`, "# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds 1.0\n", "")), code: "model-differs", exit: 1, hint: "served-model-name"},
	{id: "engine-no-program", stage: "B", where: "file on host", how: "the engine's program is not there", do: both(program("exit 0"), func(s *scene) { s.deploy("launch", "other")["argv"] = []any{"/no/such/vllm", "--port", "{port}"} }), code: "step-failed", exit: 4, orCode: notReady, orExit: 1},
	{id: "engine-no-interpreter", stage: "B", where: "file on host", how: "the program's interpreter is not there", do: both(program("exit 0"), func(s *scene) {
		for _, h := range s.hosts {
			must(s.t, os.WriteFile(h.Home+"/tools/vllm", []byte("#!/no/such/python\n"), 0o755))
		}
	}), code: "step-failed", exit: 4, orCode: "program-missing", orExit: 1},
	{id: "engine-ends", stage: "B", where: "process", how: "the engine ends without a word", do: program("sleep 0.7; exit 3"), code: notReady, exit: 1},
	{id: "engine-memory", stage: "B", where: "process", how: "the engine says that memory is too small, and ends", do: program(`sleep 0.7; echo "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB" >&2; exit 1`), code: "gpu-memory", exit: 1, hint: "memory"},
	{id: "engine-argument", stage: "B", where: "process", how: "the engine does not know an argument", do: program(`sleep 0.7; echo "vllm: error: unrecognized arguments: --kv-role" >&2; exit 2`), code: "bad-argument", exit: 1, hint: "argument"},
	{id: "engine-port-late", stage: "B", where: "process", how: "the engine finds its port taken", do: program(`sleep 0.7; echo "OSError: [Errno 98] Address already in use" >&2; exit 1`), code: "port-in-use", exit: 1, hint: "ss -ltnp"},
	{id: "engine-path", stage: "B", where: "process", how: "the engine does not find its model", do: program(`sleep 0.7; echo "FileNotFoundError: [Errno 2] No such file or directory: /models/tern" >&2; exit 1`), code: "file-missing", exit: 1, hint: "path"},
	{id: "engine-killed", stage: "B", where: "process", how: "the kernel kills the engine", do: program(`sleep 0.7; kill -9 $$`), code: notReady, exit: 1},
	{id: "engine-silent", stage: "B", where: "process", how: "the engine runs and never listens", do: program(`exec sleep 300`), code: notReady, exit: 1},
	{id: "engine-log-flood", stage: "B", where: "process", how: "the engine logs without end and never listens", do: program(`head -c 30000000 /dev/zero | tr '\0' 'x' >&2; exec sleep 300`), code: notReady, exit: 1},
	{id: "engine-log-hostile", stage: "B", where: "process", how: "the engine logs terminal sequences and ends", do: program(`sleep 0.7; printf '\033[2J\033]0;owned\007 fatal\n' >&2; exit 1`), code: notReady, exit: 1},
	{id: "engine-sick", stage: "B", where: "process", how: "the engine answers health and nothing else", do: program(server("", "", "", "", "")), code: notReady, exit: 1},
	{id: "engine-not-json", stage: "B", where: "process", how: "a web page answers in place of the engine", do: program(server("<html>", "<html>", "<html>", "<html>", "<html>")), code: notReady, exit: 1},
	{id: "engine-mute", stage: "B", where: "process", how: "the engine generates nothing", do: program(server("", `{"version":"0.32.0"}`, `{"object":"list","data":[{"id":"narwhal-sim","object":"model","root":"narwhal-sim"}]}`, "# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds 1.0\n", `{"id":"x","object":"text_completion","created":1,"model":"narwhal-sim","choices":[{"index":0,"text":"","token_ids":[],"finish_reason":"stop"}],"usage":{"prompt_tokens":7,"completion_tokens":0,"total_tokens":7}}`)), code: notReady, exit: 1},
	{id: "engine-secret", stage: "B", where: "workstation", how: "a secret's variable is not set", do: set(object{"HF_TOKEN": "env:NOT_SET_FOR_DRILLS"}, "deploy", "launch", "simulated", "secrets"), code: "step-failed", exit: 4, says: "NOT_SET_FOR_DRILLS"},
	{id: "engine-stranger", stage: "C", where: "process", how: "an engine was replaced by one of another launch", do: both(kill(1, "engine-e1"), taken(portEngine, 1)), args: []string{"gate", "run", "C", "--yes"}, gate: "C", code: "port-taken", exit: 1, hint: "ss -ltnp"},
	{id: "engine-killed-later", stage: "C", where: "process", how: "an engine is killed", do: kill(1, "engine-e1"), args: []string{"gate", "status", "--live"}, gate: "C", code: "stale", exit: 0, hint: "engine-e1"},
	{id: "engine-frozen", stage: "C", where: "process", how: "an engine hangs", do: freeze(1, "engine-e1"), args: []string{"gate", "status", "--live"}, gate: "C", code: "stale", exit: 0, hint: "does not answer"},
}
