package fleet

// Deploy is what the gates need beside the reference's document.
type Deploy struct {
	// Name names the fleet's folder in the state directory.
	Name string `json:"name"`
	// Hosts by id. A host that only forwards connections has no engine.
	Hosts    map[string]Host   `json:"hosts"`
	Defaults Defaults          `json:"defaults"`
	Engines  map[string]Place  `json:"engines"`
	Launch   map[string]Launch `json:"launch"`
	Release  Release           `json:"release"`
	Router   Router            `json:"router"`
	Fabric   Fabric            `json:"fabric"`
	Profile  Profiling         `json:"profile"`
	Trial    Trial             `json:"trial"`
	Policy   Policy            `json:"policy"`
	Sign     Sign              `json:"sign"`
	Limits   Limits            `json:"limits"`
	// Supervise is who keeps the router, the standby and the sidecars running; "" = own.
	Supervise string `json:"supervise"`
	// Monitoring is what watches the fleet; nil = nothing of it is installed or looked at.
	Monitoring *Monitoring `json:"monitoring,omitempty"`
}

// Host is a machine reached over SSH.
type Host struct {
	Address string `json:"address"`
	Port    int    `json:"port"` // SSH port; 0 = the user's ssh configuration, else 22
	User    string `json:"user"` // "" = the user's ssh configuration, else the local user
	// Jump is the id of the host to pass through, "" for none.
	Jump string `json:"jump"`
	// HostKeys are pins: "ssh-ed25519 AAAA…" lines or "SHA256:…" fingerprints.
	HostKeys []string `json:"host_keys"`
	// KnownHosts and Identity are file references ("file:PATH"), "" for the user's defaults.
	KnownHosts string `json:"known_hosts"`
	Identity   string `json:"identity"`
	// Passphrase and Password are secret references ("env:NAME", "file:PATH").
	Passphrase SecretRef `json:"passphrase"`
	Password   SecretRef `json:"password"`
	// Root is the absolute folder that narwhal owns on the host.
	Root string `json:"root"`
	// FabricAddress carries KV; "" = the host part of the engine's URL.
	FabricAddress string `json:"fabric_address"`
	// FabricPort is the port of the fabric tester on this host.
	FabricPort int `json:"fabric_port"`
	// Files are paths on the host whose digests gate A records.
	Files []string `json:"files"`
	// SSHConfig lets the user's ssh configuration fill what is unset here; false reads no file.
	SSHConfig bool `json:"ssh_config"`
	// Supervise replaces the fleet's for this host; "" = the fleet's.
	Supervise string `json:"supervise"`
}

// Defaults apply to every engine that names nothing else.
type Defaults struct {
	Launch string `json:"launch"`
}

// Place puts an engine on a host.
type Place struct {
	Host   string `json:"host"`
	Launch string `json:"launch"` // "" = Defaults.Launch
	Ports  *Ports `json:"ports,omitempty"`
	// GPUs that the engine sees on each of its hosts, by index or UUID; nil = as its launch says.
	GPUs []string `json:"gpus,omitempty"`
	// Workers are the hosts of the engine's other ranks, in their order; rank 0 is on Host.
	Workers []string `json:"workers,omitempty"`
}

// Launcher kinds.
const (
	LaunchProcess   = "process"
	LaunchContainer = "container"
	LaunchSystemd   = "systemd"
	LaunchSimulated = "simulated"
)

// Launch says how an engine is started.
type Launch struct {
	Kind string `json:"kind"`
	// Argv may hold {port}, {listen}, {iid}, {model}, {side_channel}, {root}, {run_dir}, {rank},
	// {nodes}, {head}, {rendezvous}.
	Argv []string          `json:"argv"`
	Env  map[string]string `json:"env"`
	// Secrets are environment variables by reference; they never reach a file or an argv.
	Secrets map[string]SecretRef `json:"secrets"`
	Image   string               `json:"image"` // container: pinned image id or digest
	Runtime string               `json:"runtime"`
	Unit    string               `json:"unit"`  // systemd: unit name, may hold {iid} and {rank}
	Scope   string               `json:"scope"` // systemd: "system" or "user"; "" = system
	// Container says how a container is run; nil = with the defaults.
	Container *Container `json:"container,omitempty"`
	// Serve describes the command of a vLLM or SGLang engine, which then has no Argv.
	Serve     *Serve     `json:"serve,omitempty"`
	ModelDir  string     `json:"model_dir"`
	Within    Duration   `json:"ready_within"`
	StopAfter Duration   `json:"stop_within"`
	Ports     Ports      `json:"ports"`
	Simulated *Simulated `json:"simulated,omitempty"`
}

// Ports that an engine binds besides its URL's.
type Ports struct {
	SideChannel int    `json:"side_channel"` // 0 = none
	UCX         string `json:"ucx"`          // "45000-45100", "" = none
	// Rendezvous is where the ranks of an engine meet, on its first host; 0 = none.
	Rendezvous int `json:"rendezvous,omitempty"`
}

// Simulated is the latency and cache model of the simulated engine.
// Times are seconds; see runtime/engine/simulated for the formula.
type Simulated struct {
	Seed           uint64  `json:"seed"`
	PrefillA       float64 `json:"prefill_a_s"`        // per batch
	PrefillB       float64 `json:"prefill_b_s"`        // per token
	PrefillC       float64 `json:"prefill_c_s"`        // per token squared
	DecodeD        float64 `json:"decode_d_s"`         // per step
	DecodeE        float64 `json:"decode_e_s"`         // per running sequence
	DecodeF        float64 `json:"decode_f_s"`         // per resident token
	Jitter         float64 `json:"jitter"`             // relative, 0 … 0.5
	HandshakeS     float64 `json:"handshake_s"`        // first contact of a pair
	TransferS      float64 `json:"transfer_s"`         // latency of a KV read
	TransferGbps   float64 `json:"transfer_gbps"`      // rate of a KV read
	BlockSize      int     `json:"block_size"`         // tokens
	Blocks         int     `json:"blocks"`             // KV blocks
	MaxModelLen    int     `json:"max_model_len"`      // tokens
	MaxNumSeqs     int     `json:"max_num_seqs"`       // running limit
	MaxBatched     int     `json:"max_batched_tokens"` // prefill budget a step
	LeaseS         float64 `json:"kv_lease_s"`         // pin of a handoff
	Layers         int     `json:"layers"`             // cache geometry
	KVHeads        int     `json:"kv_heads"`           // cache geometry
	HeadSize       int     `json:"head_size"`          // cache geometry
	ElementBytes   int     `json:"element_bytes"`      // cache geometry
	StartS         float64 `json:"start_s"`            // delay before the port opens
	EngineVersion  string  `json:"engine_version"`     // answer of /version
	PrefixCaching  bool    `json:"prefix_caching"`     // reuse blocks by hash
	FailureControl bool    `json:"failure_control"`    // open the injection routes
}

// Release says which binary runs on the hosts.
type Release struct {
	// Binary is "" for the running executable, or a file reference.
	Binary string `json:"binary"`
	// Binaries are file references for hosts of other machines, by GOOS/GOARCH.
	Binaries map[string]string `json:"binaries,omitempty"`
	// Keep is how many releases stay on a host.
	Keep int `json:"keep"`
}

// Router places the router.
type Router struct {
	Host    string   `json:"host"`
	Listen  string   `json:"listen"` // address:port on the host
	Standby *Standby `json:"standby,omitempty"`
	// Tunnel is the local end, "" = 127.0.0.1 with a free port.
	Tunnel  string        `json:"tunnel"`
	Within  Duration      `json:"ready_within"`
	HTTP    RouterHTTP    `json:"http"`
	Lease   RouterLease   `json:"lease"`
	Journal RouterJournal `json:"journal"`
	// LendFrom is the share of slo.ttft_s that a prefill must wait for decode engines to take it
	// where their residents can bear it; 0 = never.
	LendFrom float64 `json:"lend_from"`
	// PrefixAffinity prices prefills by what engines are believed to hold of the prompt.
	PrefixAffinity bool `json:"prefix_affinity"`
}

// Standby places a warm standby.
type Standby struct {
	Host   string `json:"host"`
	Listen string `json:"listen"`
}

// Fabric is the transfer network and the budget that it must carry.
// required Gbit/s = 8 × payload bytes × handoffs_per_s × headroom / 1e9.
type Fabric struct {
	Interface    string   `json:"interface"` // "" = any
	Transport    string   `json:"transport"` // tcp | rdma | ucx
	PromptTokens int      `json:"prompt_tokens"`
	HandoffsPerS float64  `json:"handoffs_per_s"`
	Burst        int      `json:"burst"`
	BudgetS      float64  `json:"transfer_budget_s"`
	Headroom     float64  `json:"headroom"`
	MinGbps      float64  `json:"min_gbps"` // floor below which no budget goes
	Sample       Duration `json:"sample"`   // length of one measurement
	Streams      int      `json:"streams"`  // TCP streams per edge
	Port         int      `json:"port"`     // tester's port where a host sets none
	// Tool is "narwhal"; "iperf3", which then measures every edge too; or "auto", with which it
	// measures those both of whose hosts have it. Transport "rdma" is measured by ib_write_bw
	// and ib_read_bw, "ucx" by ucx_perftest.
	Tool string `json:"tool"`
	// Device is the RDMA device, with its port after a colon; "" = the tool's choice.
	Device string `json:"device"`
	// GIDIndex selects the address of an RDMA port; nil = the tool's choice.
	GIDIndex *int `json:"gid_index,omitempty"`
	// Outlier is how far below its peers' median, as a part of it, an edge may lie; 0 = any.
	Outlier float64 `json:"outlier"`
	// Incast lets all hosts send to one at once, each in turn.
	Incast bool `json:"incast"`
	// UnderDecode measures each pair again while the engines of its hosts decode.
	UnderDecode bool `json:"under_decode"`
	// AtOnce is how many pairs are measured at once, 0 = as many as have hosts of their own.
	AtOnce int `json:"at_once"`
}

// Measured identifies everything that a sample depends on, and nothing that only its
// judgement does.
func (f Fabric) Measured() any {
	return []any{f.Interface, f.Transport, f.Sample, f.Streams, f.Port, f.Tool, f.Device, f.GIDIndex}
}

// Profiling says at which points gate F measures an engine.
type Profiling struct {
	PrefillTokens  []int `json:"prefill_tokens"`  // prompt lengths
	PrefillRepeats int   `json:"prefill_repeats"` // samples a length
	DecodeRequests []int `json:"decode_requests"` // cohort sizes
	DecodeTokens   []int `json:"decode_tokens"`   // prompt lengths of a cohort
	OutputTokens   int   `json:"output_tokens"`   // generated by each of a cohort
	PairTokens     int   `json:"pair_tokens"`     // prompt length of a handoff probe
	// Pairs of engines that hand over: mesh | hosts | ring.
	Pairs string `json:"pairs"`
	// Budget ends the repeats of one engine's sweep where noise keeps its points apart.
	Budget Duration `json:"budget"`
	// Uncertainty is how far the decode curve may be from the engine's own, as a part of it, where
	// noise explains its errors; 0 = DefaultUncertainty.
	Uncertainty float64 `json:"uncertainty"`
	// LeaseDrill lets a handoff of each engine expire; it takes as long as the lease.
	LeaseDrill bool `json:"lease_drill"`
}

// DefaultUncertainty of a decode curve.
const DefaultUncertainty = 0.2

// Measured identifies everything that the measurements of an engine depend on.
func (p Profiling) Measured() any {
	return []any{p.PrefillTokens, p.PrefillRepeats, p.DecodeRequests, p.DecodeTokens, p.OutputTokens, p.Budget}
}

// Trial is the measured traffic of gate G.
type Trial struct {
	Rates        []float64 `json:"rates"` // requests/s, one point each
	Requests     int       `json:"requests"`
	InputTokens  int       `json:"input_tokens"`  // 0 = as in the trace
	OutputTokens int       `json:"output_tokens"` // 0 = as in the trace
	Attainment   float64   `json:"attainment"`    // least share of SLO-qualified over offered
	Trace        string    `json:"trace"`         // embedded trace slice: azure-conv | azure-code | azure
	MaxInput     int       `json:"max_input_tokens"`
	MaxOutput    int       `json:"max_output_tokens"`
	Seed         uint64    `json:"seed"`
}

// Policy says what a run may do without being asked.
type Policy struct {
	// Allow lists the effects that need no approval: observe, mutate, disrupt.
	Allow []string `json:"allow"`
	// MaxClockOffset is the largest clock difference between a host and the workstation.
	MaxClockOffset Duration `json:"max_clock_offset"`
	MinDiskFree    Size     `json:"min_disk_free"`
	MaxEvidenceAge Duration `json:"max_evidence_age"` // 0 = no limit
	// RestartDrill lets gate F restart an engine of each role.
	RestartDrill bool `json:"restart_drill"`
}

// Sign names the operator's key and who is trusted.
type Sign struct {
	Key        string    `json:"key"` // "" = the state directory's own key, else "file:PATH" or a key management's reference
	Passphrase SecretRef `json:"passphrase"`
	Trust      []string  `json:"trust"`  // "file:PATH" of public keys
	Policy     string    `json:"policy"` // "file:PATH" of a signing policy, "" = Trust may sign everything
}

// Limits bound a run.
type Limits struct {
	FanOut      int      `json:"fan_out"` // hosts worked on at once
	Connect     Duration `json:"connect"`
	OutputBytes Size     `json:"output_bytes"` // of one remote command
	LockTTL     Duration `json:"lock_ttl"`
}
