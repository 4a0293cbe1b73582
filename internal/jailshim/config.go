// Package jailshim is the shim of a jail: the parent process of a sandbox that runs as a process of this machine. The shim
// creates and removes the jail's control groups, watches its memory if there are none, and at the end removes a
// throwaway sandbox's files. A shim that is killed takes the sandbox with it.
package jailshim

import "syscall"

// LogFile is the file in the sandbox's directory with the output of the guest and the shim.
const LogFile = "log"

// Config is the shim's input. The shim starts the program when Go follows, and otherwise ends without starting it: by
// then its starter has recorded the shim.
type Config struct {
	// Argv is the program, with its arguments. It inherits the descriptors of package wire, and Data from FirstData on.
	Argv []string `json:"argv"`
	Env  []string `json:"env"`
	// Dir is the sandbox's directory. With Throwaway it is removed at the end.
	Dir       string `json:"dir"`
	Throwaway bool   `json:"throwaway,omitempty"`
	// Config is the configuration of the guest.
	Config []byte   `json:"config"`
	Data   [][]byte `json:"data,omitempty"`
	Groups []Group  `json:"groups,omitempty"`
	// WatchBytes limits the memory of all processes together if no group does; 0 means no limit.
	WatchBytes int64 `json:"watch_bytes,omitempty"`
	// OwnSockets is passed to proc.Spec.
	OwnSockets bool `json:"own_sockets,omitempty"`
	// End is the signal that ends the program, also when the shim dies.
	End syscall.Signal `json:"end"`
}

// FirstData is the descriptor of the first of Data.
const FirstData = 6

// Group is a control group that the shim creates.
type Group struct {
	Dir     string    `json:"dir"`
	Unified bool      `json:"unified,omitempty"` // of version 2
	Set     []Setting `json:"set,omitempty"`
}

// Setting is the value of a file of a group.
type Setting struct {
	File  string `json:"file"`
	Value string `json:"value"`
	// Optional means that some kernels lack the file.
	Optional bool `json:"optional,omitempty"`
}

// Go follows the Config in the shim's input.
const Go = "go"

// Ready is the one line that the shim prints: when the guest serves, or when it has ended before.
type Ready struct {
	Error string `json:"error,omitempty"`
}
