package wire

// Paths of the guest in a container; the directory belongs to root.
const (
	GuestDir   = "/.sandbox-agent"
	GuestFile  = GuestDir + "/guest"
	ConfigFile = GuestDir + "/config.json"
	SocketFile = GuestDir + "/wire.sock"
)

// File descriptors that a guest outside of containers inherits instead of files. Commands do not inherit them.
const (
	ListenerFD = 3 // a listening socket
	ConfigFD   = 4 // the Config
	// KillsFD is the read end of a pipe. Each byte reports a process that was killed outside because of the memory limit.
	KillsFD = 5
)

// Ready is written to standard output by such a guest once it serves.
const Ready = "ready\n"

// Config configures a guest at its start. It contains no secrets.
type Config struct {
	// User runs commands: a name, uid or uid:gid of the sandbox; "" means root.
	User string `json:"user,omitempty"`
	Dir  string `json:"dir,omitempty"` // the default working directory of commands; "" means the guest's own
	// OwnDir creates Dir if it is missing and makes User its owner.
	OwnDir bool `json:"own_dir,omitempty"`
	// Env has NAME=value entries, added to the guest's environment for each command.
	Env []string `json:"env,omitempty"`
	// ImageEnv has variables like Env. In their values $NAME and ${NAME} are variables of the guest's environment and
	// $$ is a dollar sign.
	ImageEnv map[string]string `json:"image_env,omitempty"`
	// IdleTimeoutMS ends the sandbox after so long without use, TTLMS after so long in total, OwnerTimeoutMS after so long without
	// a keep-alive signal of its owner; in milliseconds, 0 means never.
	IdleTimeoutMS  int64 `json:"idle_ms,omitempty"`
	TTLMS          int64 `json:"life_ms,omitempty"`
	OwnerTimeoutMS int64 `json:"silence_ms,omitempty"`
	// DataBytes limits the private memory of one process, and Processes the processes of the guest's user in its user
	// namespace. They are for a guest without a control group; 0 means no limit.
	DataBytes uint64 `json:"data_bytes,omitempty"`
	Processes uint64 `json:"processes,omitempty"`
	// Nested enables nested sandboxes; nil disables them.
	Nested *NestedConfig `json:"leases,omitempty"`
	// Mounts are the required mounts: the guest ends before it runs anything if one differs. Their ids are those of the kernel in Kernel.
	Mounts []MountID `json:"mounts,omitempty"`
	Kernel string    `json:"kernel,omitempty"`
	// Unisolated means that the guest is not isolated from the machine: the machine's statistics are not the sandbox's.
	Unisolated bool `json:"machine,omitempty"`
	// Proxy serves an HTTP proxy on the sandbox's loopback, whose connections PathProxied passes to the host, and names it to commands.
	Proxy bool `json:"proxy,omitempty"`
}

// MountID identifies the mount at a path.
type MountID struct {
	Target   string `json:"inside"`
	Device   uint64 `json:"device"`
	Inode    uint64 `json:"inode"`
	ReadOnly bool   `json:"read_only,omitempty"`
}

// NestedConfig configures nested sandboxes: each sees the sandbox's files and writes to a layer of its own.
type NestedConfig struct {
	// User runs commands: uid:gid of the sandbox, never root.
	User string `json:"user"`
	// Dir is the home and default working directory. Each nested sandbox has it empty and owns it.
	Dir string `json:"dir"`
	// Bytes limits the data that a nested sandbox writes; 0 means half of the machine's memory.
	Bytes int64 `json:"bytes,omitempty"`
	// Mounts are paths of the sandbox's mounts that a nested sandbox shares: its changes there persist. Changes in other
	// mounts go to its own layer.
	Mounts []string `json:"mounts,omitempty"`
	// Network gives a nested sandbox the sandbox's network instead of a loopback of its own.
	Network bool `json:"network,omitempty"`
	Proxy   bool `json:"proxy,omitempty"` // Config.Proxy
}
