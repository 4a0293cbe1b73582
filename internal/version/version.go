// Package version says which build of the program this is. It reads what the Go
// tool recorded, so that no build can forget to set it.
package version

import (
	"runtime"
	"runtime/debug"
)

// Info describes a build.
type Info struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Time     string `json:"time,omitempty"` // of the revision
	Modified bool   `json:"modified"`       // built from a tree with changes
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// devel is the version of a build that is no release.
const devel = "devel"

// Get returns the build's description.
func Get() Info {
	i := Info{Version: devel, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	b, ok := debug.ReadBuildInfo()
	if !ok {
		return i
	}
	if v := b.Main.Version; v != "" && v != "(devel)" {
		i.Version = v
	}
	for _, s := range b.Settings {
		switch s.Key {
		case "vcs.revision":
			i.Revision = s.Value
		case "vcs.time":
			i.Time = s.Value
		case "vcs.modified":
			i.Modified = s.Value == "true"
		}
	}
	return i
}

// String is the version in one word.
func String() string { return Get().Version }
