package fleet

// Container says how a container is run. It has the host's network, reads the model folder
// read-only at the path that it has on the host, and gets variables by name.
type Container struct {
	// Devices are passed through, as "/dev/infiniband/uverbs0" or "nvidia.com/gpu=0".
	Devices []string `json:"devices"`
	// GPUs is "all" or "" for none; which of them an engine sees is its variable's to say.
	GPUs string `json:"gpus"`
	// IPC is "host" or "private"; ShmSize counts where it is private, 0 = the runtime's default.
	IPC     string `json:"ipc"`
	ShmSize Size   `json:"shm_size"`
	// Memlock is "unlimited" or "inherit".
	Memlock string `json:"memlock"`
	// Mounts are further folders of the host, by their path in the container. They are read-only.
	Mounts map[string]string `json:"mounts"`
	// Init puts a small init before the engine.
	Init bool `json:"init"`
	// Seccomp is "default" or "unconfined".
	Seccomp string `json:"seccomp"`
}

// Values of a container's options.
const (
	IPCHost          = "host"
	IPCPrivate       = "private"
	MemlockUnlimited = "unlimited"
	MemlockInherit   = "inherit"
	SeccompOpen      = "unconfined"
	ScopeUser        = "user"
)

// DefaultContainer is how a container is run where the launch says nothing.
func DefaultContainer() Container {
	return Container{IPC: IPCHost, Memlock: MemlockUnlimited, Init: true, Seccomp: "default"}
}
