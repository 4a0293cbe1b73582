package sandbox

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/host/gitguard"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/host/worktree"
	"github.com/sandbox-agent/sandbox-agent/wire"
)

// Mount is a directory or file of the host in a sandbox; both paths are absolute. Repositories in a directory are
// read-only, even if the mount is writable.
type Mount struct {
	Source   string `json:"source"`
	Target   string `json:"target"`
	ReadOnly bool   `json:"read_only,omitempty"`
}

// UnmarshalJSON implements json.Unmarshaler. It also reads the names of older versions. An unknown field is an error: if it
// had no effect, a mount could be writable by mistake.
func (m *Mount) UnmarshalJSON(b []byte) error {
	type plain Mount
	var read struct {
		plain
		Host   string `json:"host"`
		Inside string `json:"inside"`
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&read); err != nil {
		return err
	}
	*m = Mount(read.plain)
	m.Source, m.Target = cmp.Or(m.Source, read.Host), cmp.Or(m.Target, read.Inside)
	return nil
}

// machine are directories whose mount would give a sandbox the whole host, or the kernel's view of it.
var machine = []string{"/", "/proc", "/sys", "/dev", "/boot"}

const memory = "/dev/shm" // ordinary files below a directory of machine

// taken are directories in the sandbox that belong to the guest or the kernel.
var taken = []string{"/", "/proc", "/sys", "/dev", wire.GuestDir}

// engineSockets are the sockets of engines on the host. Access to one is root access.
var engineSockets = []string{"/var/run/docker.sock", "/run/docker.sock", "/run/podman/podman.sock", "/run/containerd/containerd.sock"}

// checkMounts validates mounts. It resolves paths of the host.
func checkMounts(all []Mount) error {
	var errs []error
	wrong := func(m Mount, format string, args ...any) {
		errs = append(errs, fmt.Errorf("mount of %s at %s: %w: %s", m.Source, m.Target, runtime.ErrInvalidMount, fmt.Sprintf(format, args...)))
	}
	inside := map[string]bool{}
	for _, m := range all {
		in := filepath.Clean(m.Target)
		if !filepath.IsAbs(m.Target) || slices.Contains(taken, in) ||
			slices.ContainsFunc(taken[1:], func(t string) bool { return below(in, t) }) {
			wrong(m, "use an absolute path in the sandbox outside of the guest's and the kernel's directories")
		}
		if inside[in] {
			wrong(m, "another mount has this path")
		}
		inside[in] = true
		if !filepath.IsAbs(m.Source) {
			wrong(m, "use an absolute path of this machine")
			continue
		}
		target, err := filepath.EvalSymlinks(m.Source)
		if err != nil {
			wrong(m, "%s", errors.Unwrap(err))
			continue
		}
		if slices.Contains(machine, target) ||
			!below(target, memory) && slices.ContainsFunc(machine[1:], func(t string) bool { return below(target, t) }) {
			wrong(m, "it would expose the machine itself")
		}
		for _, s := range engineSockets {
			if s, err := filepath.EvalSymlinks(s); err == nil && below(s, target) {
				wrong(m, "it contains %s, which gives a sandbox control of the machine", s)
				break
			}
		}
	}
	return errors.Join(errs...)
}

// guarded returns mounts in which each writable directory has read-only mounts over the files from which the host's git takes programs
// and settings. The directories above them are mounts, too, so that the sandbox cannot move them away and replace them.
func guarded(ctx context.Context, all []Mount) ([]Mount, error) {
	if len(writable(all)) == 0 {
		return all, nil
	}
	found, err := gitguard.Find(ctx, writable(all))
	if err != nil {
		return nil, fmt.Errorf("mount of %s: %w: %w", strings.Join(writable(all), ", "), runtime.ErrInvalidMount, err)
	}
	inside := map[string]string{}
	for _, m := range all {
		inside[filepath.Clean(m.Target)] = m.Source
	}
	for _, m := range slices.Clone(all) {
		for _, path := range found {
			own, err := filepath.Rel(m.Source, path)
			if m.ReadOnly || err != nil || !filepath.IsLocal(own) {
				continue
			}
			for at, rest := "", own; rest != ""; {
				var part string
				part, rest, _ = strings.Cut(rest, "/")
				at = filepath.Join(at, part)
				in, host := filepath.Join(m.Target, at), filepath.Join(m.Source, at)
				if inside[in] == "" {
					inside[in] = host
					all = append(all, Mount{host, in, rest == ""})
				}
				if inside[in] != host {
					break // another mount hides it
				}
			}
		}
	}
	return all, nil
}

func writable(all []Mount) (paths []string) {
	for _, m := range all {
		if !m.ReadOnly {
			paths = append(paths, m.Source)
		}
	}
	return paths
}

// protected returns the host paths of read-only mounts.
func protected(all []Mount) (paths []string) {
	for _, m := range all {
		if m.ReadOnly {
			paths = append(paths, m.Source)
		}
	}
	return paths
}

// NewRepositories returns what has made repositories, since the sandbox was created, in host directories that it can
// write to: each .git, and the HEAD of each bare repository. The sandbox may control their settings, by which the
// host's git runs programs. It returns at most 100 paths, after at most 10 seconds; all is false if there may be more.
func (s Spec) NewRepositories(ctx context.Context) (paths []string, all bool) {
	mounts := s.named()
	return gitguard.Appeared(ctx, writable(mounts), protected(mounts))
}

// guard adds the protecting mounts to a complete spec.
func (s *Spec) guard(ctx context.Context) error {
	own := s.named()
	all, err := guarded(ctx, own)
	if err != nil {
		return fmt.Errorf("sandbox %s: %w: %w", s.Name, ErrInvalidSpec, err)
	}
	s.Mounts = append(s.Mounts, all[len(own):]...)
	return nil
}

// named returns the mounts without those of the worktree.
func (s *Spec) named() []Mount {
	return slices.DeleteFunc(slices.Clone(s.Mounts), func(m Mount) bool { return s.Worktree != "" && worktree.IsPart(m.Target) })
}

// mountable returns an error if the mounts of a stopped sandbox have changed on the host.
func (in *instance) mountable(ctx context.Context) error {
	s := in.current()
	if err := sameMounts(s.Mounts); err != nil {
		return err
	}
	if err := stillGuarded(ctx, s.named()); err != nil {
		return err
	}
	if s.Worktree == "" {
		return nil
	}
	return worktree.Of(in.c.state, s.Name, s.Worktree).Guard(ctx)
}

// stillGuarded returns an error if the host's git would take programs or settings from a writable file that appeared
// since the mounts were made.
func stillGuarded(ctx context.Context, all []Mount) error {
	if len(writable(all)) == 0 {
		return nil
	}
	if err := gitguard.Check(ctx, writable(all), protected(all)); err != nil {
		return &kindError{ErrInvalidSpec, fmt.Errorf("%w: %w", runtime.ErrInvalidMount, err)}
	}
	return nil
}

// resolved returns mounts with the host's links resolved.
func resolved(all []Mount) []Mount {
	all = slices.Clone(all)
	for i, m := range all {
		if target, err := filepath.EvalSymlinks(m.Source); err == nil {
			all[i].Source = target
		}
	}
	return all
}

// sameMounts returns an error if resolved mounts now lead elsewhere. A sandbox that can write to a directory may have replaced a
// directory below it by a link. If that is a mount of this or another sandbox, the next start would follow the link.
func sameMounts(all []Mount) error {
	errs := []error{checkMounts(all)}
	for i, now := range resolved(all) {
		if was := all[i]; now.Source != was.Source {
			errs = append(errs, fmt.Errorf("mount of %s at %s: %w: since the sandbox was created a link leads to %s",
				was.Source, was.Target, runtime.ErrInvalidMount, now.Source))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return &kindError{ErrInvalidSpec, err}
	}
	return nil
}

// below reports whether a path is a directory or inside of it.
func below(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, string(os.PathSeparator))+string(os.PathSeparator))
}
