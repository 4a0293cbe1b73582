package wire

// Where a container has the guest, in a folder of root's.
const (
	GuestDir   = "/.sandbox-agent"
	GuestFile  = GuestDir + "/guest"
	ConfigFile = GuestDir + "/config.json"
	SocketFile = GuestDir + "/wire.sock"
)

// Config is what a guest reads at its start from ConfigFile. It has no secrets.
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
}
