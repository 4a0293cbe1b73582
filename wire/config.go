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
	// Env is NAME=value, added to the guest's own environment for each command.
	Env []string `json:"env,omitempty"`
	// IdleMS ends the sandbox when nobody has used it for so long, LifeMS after that time, SilenceMS when its owner has given no sign of
	// life for so long; in milliseconds, 0 never does.
	IdleMS    int64 `json:"idle_ms,omitempty"`
	LifeMS    int64 `json:"life_ms,omitempty"`
	SilenceMS int64 `json:"silence_ms,omitempty"`
	// DataBytes bounds the memory that one process can have for itself, Processes those of the guest's user in its user namespace: for a guest without a
	// control group. 0 does not.
	DataBytes uint64 `json:"data_bytes,omitempty"`
	Processes uint64 `json:"processes,omitempty"`
	// Machine says that nothing is between the guest and the machine: numbers of the machine are none of the sandbox's.
	Machine bool `json:"machine,omitempty"`
}
