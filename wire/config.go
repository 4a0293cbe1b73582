package wire

// Where a container has the guest, in a folder of root's.
const (
	GuestDir   = "/.sandbox-agent"
	GuestFile  = GuestDir + "/guest"
	ConfigFile = GuestDir + "/config.json"
	SocketFile = GuestDir + "/wire.sock"
)

// What a guest inherits that is no container's: descriptors in place of files. Commands have none of them.
const (
	ListenerFD = 3 // a socket that listens for users
	ConfigFD   = 4 // the Config
	// KillsFD is the end of a pipe: a byte in it is a process that was killed outside for lack of memory.
	KillsFD = 5
)

// Ready is what such a guest writes to its standard output once it serves.
const Ready = "ready\n"

// Config is what a guest reads at its start. It has no secrets.
type Config struct {
	// User runs commands: a name, uid or uid:gid of the sandbox; "" means root.
	User string `json:"user,omitempty"`
	// Dir is where commands begin; "" means where the guest does.
	Dir string `json:"dir,omitempty"`
	// OwnDir makes Dir if it is not there, and gives it to User.
	OwnDir bool `json:"own_dir,omitempty"`
	// Env is NAME=value, added to the guest's own environment for each command.
	Env []string `json:"env,omitempty"`
	// ImageEnv are variables like those of Env, in whose values $NAME and ${NAME} stand for variables of the guest's own environment and $$ for a dollar.
	ImageEnv map[string]string `json:"image_env,omitempty"`
	// IdleMS ends the sandbox when nobody has used it for so long, LifeMS after that time, SilenceMS when its owner has given no sign of
	// life for so long; in milliseconds, 0 never does.
	IdleMS    int64 `json:"idle_ms,omitempty"`
	LifeMS    int64 `json:"life_ms,omitempty"`
	SilenceMS int64 `json:"silence_ms,omitempty"`
	// DataBytes bounds the memory that one process can have for itself, Processes those of the guest's user in its user namespace: for a guest without a
	// control group. 0 does not.
	DataBytes uint64 `json:"data_bytes,omitempty"`
	Processes uint64 `json:"processes,omitempty"`
	// Leases lets the guest make leases; nil does not.
	Leases *Leases `json:"leases,omitempty"`
	// Mounts are what the guest finds mounted, or else ends before anything runs: numbers of the kernel that Kernel names.
	Mounts []MountID `json:"mounts,omitempty"`
	Kernel string    `json:"kernel,omitempty"`
	// Machine says that nothing is between the guest and the machine: numbers of the machine are none of the sandbox's.
	Machine bool `json:"machine,omitempty"`
}

// MountID names what is mounted at a path.
type MountID struct {
	Inside   string `json:"inside"`
	Device   uint64 `json:"device"`
	Inode    uint64 `json:"inode"`
	ReadOnly bool   `json:"read_only,omitempty"`
}

// Leases are what each lease of a sandbox is like. It has the sandbox's files as they are, and what it writes is its own.
type Leases struct {
	// User runs commands: uid:gid of the sandbox, never root.
	User string `json:"user"`
	// Dir is where commands begin, a folder that each lease has empty and owns: it is the home folder, too.
	Dir string `json:"dir"`
	// Bytes bound what a lease writes; 0 means half of the machine's memory.
	Bytes int64 `json:"bytes,omitempty"`
	// Mounts are paths of the sandbox that a lease has as the sandbox has them: what it writes there stays. Others that the sandbox has beside its root, it has
	// with what it writes of its own.
	Mounts []string `json:"mounts,omitempty"`
	// Network says that a lease has the sandbox's network, and not a loopback of its own.
	Network bool `json:"network,omitempty"`
}
