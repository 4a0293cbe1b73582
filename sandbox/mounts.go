package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/wire"
)

// Mount is a folder or file of this machine in a sandbox, under absolute paths of both. The .git of a folder is read-only, also where the rest can be written to.
type Mount struct {
	Host     string `json:"host"`
	Inside   string `json:"inside"`
	ReadOnly bool   `json:"read_only,omitempty"`
}

// machine are folders with which a sandbox has the whole machine, or what the kernel makes of it.
var machine = []string{"/", "/proc", "/sys", "/dev", "/boot"}

// memory is a folder below machine that has files like any other.
const memory = "/dev/shm"

// taken are folders of the sandbox that are the guest's or the kernel's.
var taken = []string{"/", "/proc", "/sys", "/dev", wire.GuestDir}

// engineSockets are where engines of this machine are reached, by whom has them, as root.
var engineSockets = []string{"/var/run/docker.sock", "/run/docker.sock", "/run/podman/podman.sock", "/run/containerd/containerd.sock"}

// checkMounts returns all that is wrong with mounts; it looks at this machine's paths.
func checkMounts(all []Mount) error {
	var errs []error
	wrong := func(m Mount, format string, args ...any) {
		errs = append(errs, fmt.Errorf("mount of %s at %s: %w: %s", m.Host, m.Inside, runtime.ErrMount, fmt.Sprintf(format, args...)))
	}
	inside := map[string]bool{}
	for _, m := range all {
		in := filepath.Clean(m.Inside)
		if !filepath.IsAbs(m.Inside) || slices.Contains(taken, in) || slices.ContainsFunc(taken[1:], func(t string) bool { return below(in, t) }) {
			wrong(m, "it needs an absolute path in the sandbox that is not the guest's or the kernel's")
		}
		if inside[in] {
			wrong(m, "something is mounted there already")
		}
		inside[in] = true
		if !filepath.IsAbs(m.Host) {
			wrong(m, "it needs an absolute path of this machine")
			continue
		}
		target, err := filepath.EvalSymlinks(m.Host)
		if err != nil {
			wrong(m, "%s", errors.Unwrap(err))
			continue
		}
		if slices.Contains(machine, target) || !below(target, memory) && slices.ContainsFunc(machine[1:], func(t string) bool { return below(target, t) }) {
			wrong(m, "it is the machine itself")
		}
		for _, s := range engineSockets {
			if s, err := filepath.EvalSymlinks(s); err == nil && below(s, target) {
				wrong(m, "%s is in it, with which a sandbox has the machine", s)
				break
			}
		}
	}
	return errors.Join(errs...)
}

// guarded are mounts with the repository of each folder that can be written to, read-only: hooks and settings in it would run on this machine.
func guarded(all []Mount) []Mount {
	inside := map[string]bool{}
	for _, m := range all {
		inside[filepath.Clean(m.Inside)] = true
	}
	for _, m := range slices.Clone(all) {
		own := Mount{Host: filepath.Join(m.Host, ".git"), Inside: filepath.Join(m.Inside, ".git"), ReadOnly: true}
		if m.ReadOnly || inside[own.Inside] {
			continue
		}
		if _, err := os.Lstat(own.Host); err == nil {
			all = append(all, own)
		}
	}
	return all
}

// resolved are mounts under the paths to which links of this machine lead.
func resolved(all []Mount) []Mount {
	all = slices.Clone(all)
	for i, m := range all {
		if target, err := filepath.EvalSymlinks(m.Host); err == nil {
			all[i].Host = target
		}
	}
	return all
}

// sameMounts returns what is wrong with resolved mounts by now. A sandbox that may write to a folder can have put a link in the place of one below it, which is a
// mount as well, of this sandbox or another: the next start would follow it.
func sameMounts(all []Mount) error {
	errs := []error{checkMounts(all)}
	for i, now := range resolved(all) {
		if was := all[i]; now.Host != was.Host {
			errs = append(errs, fmt.Errorf("mount of %s at %s: %w: a link leads to %s since the sandbox was made", was.Host, was.Inside, runtime.ErrMount, now.Host))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return &kindError{ErrSpec, err}
	}
	return nil
}

// below reports whether a path is a folder or in it.
func below(path, folder string) bool {
	return path == folder || strings.HasPrefix(path, strings.TrimSuffix(folder, string(os.PathSeparator))+string(os.PathSeparator))
}
