package schema

// Severity of a rule.
type Severity string

// Severities: a warning turns into an error with Options.Strict. A note stays a warning:
// it depends on files of this machine and not on the document alone.
const (
	Error   Severity = "error"
	Warning Severity = "warning"
	Note    Severity = "note"
)

// Rule is one thing that a document must keep. Ids are stable.
type Rule struct {
	ID       string
	Severity Severity
	// Says is the rule as one sentence, for documentation and SARIF.
	Says string
}

// Rules is the whole table.
var Rules = []Rule{
	// Reading.
	{"syntax", Error, "The file is one well-formed document within the size and nesting limits."},
	{"duplicate-key", Warning, "A key stands once in its object; of repeated keys the last one counts."},
	{"number-finite", Error, "Numbers are finite and fit a 64-bit float."},
	{"number-form", Error, "Numbers in YAML are decimal; forms that YAML versions read differently are refused."},
	{"conflict", Error, "Files that are unified do not contradict each other."},
	{"incomplete", Error, "Every field of a CUE file has a value, or a default in the definitions."},
	{"import", Error, "A CUE file imports only packages of CUE whose work is bounded."},
	{"cue-bounds", Error, "A CUE file is evaluated within limits of time, memory and nested loops."},
	{"env-reference", Error, "An address is literal, or wholly a reference ${NAME} to a variable that is set."},
	// Shape.
	{"required", Error, "Required fields are present."},
	{"unknown-field", Error, "Every field is known; names that begin with an underscore are comments."},
	{"key-form", Error, "Names of hosts, launches, variables and machines have the form of a name."},
	{"type", Error, "Values have the kind of their field; a fraction is no whole number and a flag no number."},
	{"choice", Error, "Fields with a list of choices hold one of them, case-sensitive."},
	{"form", Error, "Text has the form that its field wants."},
	{"limit", Error, "Numbers lie within the limits of their field."},
	{"list-length", Error, "Lists have the least number of entries."},
	{"shape", Error, "The document fits the definitions."},
	// Engines.
	{"engine-id-unique", Error, "No two engines share an iid."},
	{"engine-id-form", Warning, "An iid is not empty and holds no quote, backslash or control character."},
	{"engine-id-name", Error, "With a deploy section, an iid is a name: letters, digits, dot, dash and underscore."},
	{"engine-url-form", Warning, "An engine's URL is http or https with a host, a valid port and no space."},
	{"engine-url-user", Warning, "An engine's URL holds no user or password."},
	{"engine-url-unique", Warning, "No two engines share a URL."},
	{"attestation-url-form", Warning, "An attestation URL is http or https with a host."},
	{"attestation-url-missing", Warning, "With an engine contract, every engine has an attestation URL."},
	{"shared-group-size", Error, "A shared-device group has 2 to 8 engines."},
	{"shared-group-device", Error, "The engines of a shared-device group name one GPU and one allowance."},
	{"shared-group-sum", Error, "The memory shares of a group add up to its allowance at most."},
	{"model-empty", Warning, "The model has a name."},
	// Sections.
	{"hardware-shards", Error, "The tensor parallel size is at most the accelerators of an engine."},
	{"contract-both-names", Error, "A contract field is given under one of its names."},
	{"contract-unattested", Error, "Contract fields that the backend does not attest stay unset."},
	{"contract-false-flag", Warning, "A flag that the backend does not attest is null instead of false."},
	{"contract-handshake", Error, "With vLLM the handshake's compatibility check stays on."},
	{"number-reach", Warning, "Times are off or at least 0.1 ms, looks of the controller 1 ms apart, promises at most 1e6 s, and no number is above 2^40."},
	{"floors", Error, "The role floors together are at most the number of engines."},
	{"pins-breach-floor", Warning, "Pins leave each role as many engines as its floor wants."},
	{"roles-one-sided", Warning, "A fleet of several engines starts with at least one that is no prefill engine."},
	{"thresholds-order", Error, "The shrink threshold is below the expand threshold."},
	{"margin-covers-fit", Error, "The decode fit limit is at most the movement margin."},
	{"evidence-spans", Error, "The evidence span is at most its maximum, and that at most the window."},
	{"correction-order", Error, "The upper decode correction is at least the lower one."},
	{"timeouts-order", Error, "A phase's time limit is at most the request's."},
	{"graceful-whole", Error, "The graceful time limit is a whole number of seconds."},
	{"queue-timeout", Error, "A queue has a waiting limit."},
	{"retry-order", Error, "The retry cap is at least the retry base."},
	{"backend-connector", Error, "The connector belongs to the backend."},
	{"backend-dialect", Error, "The dialect belongs to the backend."},
	{"key-variable", Warning, "The engine key is named by an environment variable's name."},
	{"whole-wave-contract", Error, "Restarting all engines together needs a complete contract."},
	{"whole-wave-liveness", Error, "Restarting all engines together needs liveness sweeps."},
	{"liveness-negative", Warning, "The liveness interval is not negative."},
	{"health-samples", Error, "The health window holds the samples that it needs."},
	{"health-order", Error, "Eviction takes at least as many windows as probation."},
	{"path-form", Warning, "Paths of profiles and state are not empty, are files, and stay inside the working directory."},
	{"path-shared", Warning, "Profiles, state and calibration are different files."},
	{"calibration-missing", Note, "The first-token calibration file exists."},
	{"slo-floor", Error, "The latency limits are above the measured floor of the profiles."},
	// Deployment.
	{"place-engine", Error, "Every place names an engine of the fleet."},
	{"place-missing", Error, "Every engine has a place."},
	{"host-unknown", Error, "Places, router, standby and jumps name hosts of the fleet."},
	{"launch-unknown", Error, "Places and defaults name launches of the fleet."},
	{"launch-missing", Error, "Every engine has a launch, of its own or by default."},
	{"launch-needs", Error, "A launch has what its kind needs: argv, image, unit or model of the simulation."},
	{"image-pinned", Error, "A container image is pinned by digest or id."},
	{"serve-model", Error, "A built command has a model folder and no argv of its own."},
	{"serve-args", Error, "Further arguments of a built command are of those that are allowed, each once."},
	{"serve-env", Error, "A launch with a built command sets no variable that the command sets, and none of another library."},
	{"unit-secrets", Error, "Secrets go to no unit of the system's manager."},
	{"unit-paths", Error, "Where systemd supervises, the root and the lease file have paths of plain characters."},
	{"worker-hosts", Error, "The ranks of an engine have hosts of their own, and a port to meet on."},
	{"gpus-ranks", Error, "An engine sees as many GPUs as its built command has ranks, each once."},
	{"argv-placeholder", Error, "Placeholders of a command are known."},
	{"jump-cycle", Error, "Jumps end."},
	{"roles-impossible", Error, "Some engine may prefill and some engine may decode."},
	{"listen-port", Error, "A listening address has a port from 1 to 65535."},
	{"port-range", Error, "A range of ports ascends within 1 to 65535."},
	{"port-collision", Error, "No two listeners of a host share a port."},
	{"ucx-overlap", Error, "Port ranges of one host do not overlap."},
	{"kv-layout", Error, "Launches agree in everything that shapes the KV cache."},
	{"path-absolute", Error, "Paths on hosts are absolute and clean."},
	{"path-escape", Error, "Paths on hosts hold no .. and no NUL."},
	{"root-too-wide", Error, "The folder that narwhal owns on a host is not one of the system's."},
	{"secret-literal", Error, "Secrets are references, env:NAME or file:PATH, and never literal; nor do a launch's variables and command hold one."},
	{"profile-points", Error, "The points of a measurement differ from each other."},
	{"router-timeouts", Error, "The router's time limits for headers and idle connections are above zero; a keepalive is off or at least 100ms."},
	{"lease-store", Error, "A lease is in a file or in etcd, not in both."},
	{"lease-times", Error, "A lease is renewed, and its ttl is above the renewal interval and the margin together."},
	{"lease-seconds", Error, "With etcd, the ttl of a lease is whole seconds."},
	{"etcd-endpoints", Error, "Endpoints of etcd have a port and differ from each other."},
	{"etcd-credentials", Error, "A user has a password, a client certificate its key, and certificates go with https."},
	{"etcd-clear", Warning, "A password goes to etcd over https only."},
	{"standby-host", Warning, "The standby runs on another host than the router."},
	{"standby-lease", Warning, "A standby shares a lease with the router; without one gate G does not start it."},
	{"standby-reach", Warning, "The router listens where the standby's host reaches it."},
	{"monitoring-reach", Warning, "Router and standby listen where the monitoring's host reaches them."},
}

// ruleByID returns the rule; an id that the table lacks counts as an error.
func ruleByID(id string) Rule {
	for _, r := range Rules {
		if r.ID == id {
			return r
		}
	}
	return Rule{ID: id, Severity: Error}
}
