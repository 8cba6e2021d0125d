// Package fleet holds the plain types of a fleet document and their invariants.
//
// It promises types that marshal to the narwhal.fleet version 2 document and pure
// functions over them. It refuses I/O: reading files, resolving environment
// references and reporting positions belong to package schema.
package fleet

// Schema and Version name the document that this package describes.
const (
	Schema  = "narwhal.fleet"
	Version = 2
)

// Roles that an engine can hold.
const (
	RolePrefill = "prefill"
	RoleDecode  = "decode"
)

// Fleet is one model served by a set of engines that share a KV layout.
// Every field holds its effective value: package schema fills the defaults.
type Fleet struct {
	Schema         string     `json:"schema"`
	SchemaVersion  int        `json:"schema_version"`
	Model          string     `json:"model"`
	Engines        []Engine   `json:"engines"`
	SLO            SLO        `json:"slo"`
	Hardware       *Hardware  `json:"hardware"`
	EngineContract *Contract  `json:"engine_contract"`
	Controller     Controller `json:"controller"`
	Serving        Serving    `json:"serving"`
	Engine         Backend    `json:"engine"`
	Recovery       Recovery   `json:"recovery"`
	Profiles       Profiles   `json:"profiles"`
	// Deploy is narwhal's own section; nil in a document of the reference.
	Deploy *Deploy `json:"deploy,omitempty"`
}

// Engine is one inference server process.
type Engine struct {
	IID            string        `json:"iid"`
	URL            string        `json:"url"`
	AttestationURL string        `json:"attestation_url"`
	Role           string        `json:"role"`
	Pin            bool          `json:"pin"`
	SharedDevice   *SharedDevice `json:"shared_device"`
}

// SharedDevice describes the share of one GPU that an engine holds.
type SharedDevice struct {
	Group                string  `json:"group"`
	GPUUUID              string  `json:"gpu_uuid"`
	DeviceAllowance      float64 `json:"device_allowance"`
	GPUMemoryUtilization float64 `json:"gpu_memory_utilization"`
}

// SLO is the fleet's latency promise, in seconds.
type SLO struct {
	TTFTS float64 `json:"ttft_s"`
	TPOTS float64 `json:"tpot_s"`
}

// Hardware is what each engine runs on.
type Hardware struct {
	Accelerator           string `json:"accelerator"`
	AcceleratorsPerEngine int    `json:"accelerators_per_engine"`
	TensorParallel        int    `json:"tensor_parallel"`
}

// Contract is what every engine of the fleet attests alike.
type Contract struct {
	EngineVersion          string `json:"engine_version"`
	ImageDigest            string `json:"image_digest"`
	TransferVersion        string `json:"transfer_version"`
	ConnectorVersion       int    `json:"connector_version"`
	ModelArchitecture      string `json:"model_architecture"`
	ModelDtype             string `json:"model_dtype"`
	KVHeads                int    `json:"kv_heads"`
	HeadSize               int    `json:"head_size"`
	HiddenLayers           int    `json:"hidden_layers"`
	AttentionBackend       string `json:"attention_backend"`
	KVCacheDtype           string `json:"kv_cache_dtype"`
	CrossLayersBlocks      *bool  `json:"cross_layers_blocks"`
	HybridKVCacheManager   *bool  `json:"hybrid_kv_cache_manager"`
	Connector              string `json:"connector"`
	KVRole                 string `json:"kv_role"`
	TransferMode           string `json:"transfer_mode"`
	SpeculativeConfig      string `json:"speculative_config"`
	EnforceHandshakeCompat *bool  `json:"enforce_handshake_compat"`
}

// Controller configures the role controller. Times are seconds.
type Controller struct {
	Advisory            bool       `json:"advisory"`
	MonitorIntervalS    float64    `json:"monitor_interval_s"`
	MonitorFailureLimit int        `json:"monitor_failure_limit"`
	MinPrefill          int        `json:"min_prefill"`
	MinDecode           int        `json:"min_decode"`
	FlipHistory         int        `json:"flip_history"`
	Thresholds          Thresholds `json:"thresholds"`
	Reactive            Reactive   `json:"reactive"`
}

// Thresholds are the controller's load limits.
type Thresholds struct {
	Expand             float64 `json:"expand"`
	Shrink             float64 `json:"shrink"`
	CooldownS          float64 `json:"cooldown_s"`
	DwellS             float64 `json:"dwell_s"`
	SustainedIntervals int     `json:"sustained_intervals"`
	PanicRatio         float64 `json:"panic_ratio"`
	FlipResidentGuard  int     `json:"flip_resident_guard"`
}

// Reactive configures the controller that scores adjacent splits.
type Reactive struct {
	WindowS                    float64 `json:"window_s"`
	Confirmations              int     `json:"confirmations"`
	Utilization                float64 `json:"utilization"`
	MinArrivals                int     `json:"min_arrivals"`
	DemandFloor                float64 `json:"demand_floor"`
	MovementMargin             float64 `json:"movement_margin"`
	StepS                      float64 `json:"step_s"`
	EvidenceSpanS              float64 `json:"evidence_span_s"`
	EvidenceMaxSpanS           float64 `json:"evidence_max_span_s"`
	EvidenceMinArrivals        int     `json:"evidence_min_arrivals"`
	DemandRiseTolerance        float64 `json:"demand_rise_tolerance"`
	DecodeCorrectionMin        float64 `json:"decode_correction_min"`
	DecodeCorrectionMax        float64 `json:"decode_correction_max"`
	DecodeCorrectionAlpha      float64 `json:"decode_correction_alpha"`
	DecodeCorrectionMinSamples int     `json:"decode_correction_min_samples"`
}

// Serving limits the router's client side.
type Serving struct {
	Admission        string  `json:"admission"`
	AdmissionMargin  float64 `json:"admission_margin"`
	MaxConnections   int     `json:"max_connections"`
	RequestTimeoutS  float64 `json:"request_timeout_s"`
	PrefillTimeoutS  float64 `json:"prefill_timeout_s"`
	GracefulTimeoutS float64 `json:"graceful_timeout_s"`
	QueueCapacity    int     `json:"queue_capacity"`
	QueueTimeoutS    float64 `json:"queue_timeout_s"`
	MaxAttempts      int     `json:"max_attempts"`
	RetryBaseS       float64 `json:"retry_base_s"`
	RetryCapS        float64 `json:"retry_cap_s"`
	RetryBudget      int     `json:"retry_budget"`
	RetryReplenish   float64 `json:"retry_replenish"`
	MaxRequestBytes  int64   `json:"max_request_bytes"`
	MaxResponseBytes int64   `json:"max_response_bytes"`
	// BodyMemoryBytes bounds the bodies, and apart from them the answers. It is no key of the reference; 0 = a multiple of MaxRequestBytes.
	BodyMemoryBytes int64 `json:"body_memory_bytes,omitempty"`
}

// Backend configures how the router speaks to engines (the document's `engine`).
type Backend struct {
	Backend                   string  `json:"backend"`
	Connector                 string  `json:"connector"`
	Dialect                   string  `json:"dialect"`
	Tokenize                  bool    `json:"tokenize"`
	CharsPerToken             float64 `json:"chars_per_token"`
	TokenizeTimeoutS          float64 `json:"tokenize_timeout_s"`
	EngineAPIKeyEnv           string  `json:"engine_api_key_env"`
	ControlConnections        int     `json:"control_connections"`
	PoolTimeoutS              float64 `json:"pool_timeout_s"`
	ConnectTimeoutS           float64 `json:"connect_timeout_s"`
	HealthTimeoutS            float64 `json:"health_timeout_s"`
	DecodeReadTimeoutS        float64 `json:"decode_read_timeout_s"`
	FirstTokenTimeoutS        float64 `json:"first_token_timeout_s"`
	FirstTokenCalibrationPath string  `json:"first_token_calibration_path"`
}

// Recovery configures ejection, readmission and resume.
type Recovery struct {
	EjectAfter          int     `json:"eject_after"`
	ReadmitEvery        int     `json:"readmit_every"`
	LivenessEvery       int     `json:"liveness_every"`
	LivenessMisses      int     `json:"liveness_misses"`
	EngineRestartPolicy string  `json:"engine_restart_policy"`
	FailureQuarantineS  float64 `json:"failure_quarantine_s"`
	StatePath           string  `json:"state_path"`
	Resume              bool    `json:"resume"`
	Health              Health  `json:"health"`
}

// Health configures the drift verdict on engines.
type Health struct {
	WindowS           float64 `json:"window_s"`
	DriftBand         float64 `json:"drift_band"`
	MinSamples        int     `json:"min_samples"`
	ProbationWindows  int     `json:"probation_windows"`
	EvictWindows      int     `json:"evict_windows"`
	RecoveryWindows   int     `json:"recovery_windows"`
	ProbationPenaltyS float64 `json:"probation_penalty_s"`
	RelativeBand      float64 `json:"relative_band"`
}

// Profiles locates the latency curves and limits their residuals.
type Profiles struct {
	Path             string  `json:"path"`
	MaxDecodeFitMAPE float64 `json:"max_decode_fit_mape"`
	MaxDecodeCVMAPE  float64 `json:"max_decode_cv_mape"`
}
