// Package keep holds a sandbox that is a process of this machine from outside of it: a keeper is that process's
// parent. It makes and removes its control groups, watches its memory where there are none, and when it ends removes
// what was to be thrown away. A keeper that is killed takes the sandbox with it.
package keep

import "syscall"

// LogFile is what the sandbox and its keeper said, in the sandbox's folder.
const LogFile = "log"

// Plan is what a keeper reads from its standard input. It starts when a Go follows, and otherwise ends without
// starting: the process that asks for it has written down the keeper by then.
type Plan struct {
	// Argv is the program, with its arguments. It inherits the descriptors of package wire, and Data from FirstData on.
	Argv []string `json:"argv"`
	Env  []string `json:"env"`
	// Dir is the sandbox's folder. With Throwaway it is removed at the end.
	Dir       string `json:"dir"`
	Throwaway bool   `json:"throwaway,omitempty"`
	// Config is the guest's.
	Config []byte   `json:"config"`
	Data   [][]byte `json:"data,omitempty"`
	Groups []Group  `json:"groups,omitempty"`
	// WatchBytes is the memory that all processes may have together, where no group says so; 0 does not watch.
	WatchBytes int64 `json:"watch_bytes,omitempty"`
	// OwnSockets is proc.Spec's.
	OwnSockets bool `json:"own_sockets,omitempty"`
	// End is what the program gets when it is to end, and when the keeper is gone.
	End syscall.Signal `json:"end"`
}

// FirstData is the descriptor of the first of Data.
const FirstData = 6

// Group is a control group that the keeper makes.
type Group struct {
	Dir     string    `json:"dir"`
	Unified bool      `json:"unified,omitempty"` // of version 2
	Set     []Setting `json:"set,omitempty"`
}

// Setting is a file of a group.
type Setting struct {
	File  string `json:"file"`
	Value string `json:"value"`
	// Optional is one that not every kernel has.
	Optional bool `json:"optional,omitempty"`
}

// Go follows a Plan.
const Go = "go"

// Answer is the one line that a keeper prints: when the guest serves, or when it has ended before.
type Answer struct {
	Error string `json:"error,omitempty"`
}
