package sandbox

import (
	"context"
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

// Mount is a folder or file of this machine in a sandbox, under absolute paths of both. The repositories in a folder are read-only, also where the rest can be written to.
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

// guarded are mounts with what git on this machine takes programs and settings from read-only, in each directory that can be written to. The directories above are mounts of
// their own, which nothing in the sandbox can move away to put another in their place.
func guarded(ctx context.Context, all []Mount) ([]Mount, error) {
	if len(writable(all)) == 0 {
		return all, nil
	}
	found, err := gitguard.Find(ctx, writable(all))
	if err != nil {
		return nil, fmt.Errorf("mount of %s: %w: %w", strings.Join(writable(all), ", "), runtime.ErrMount, err)
	}
	inside := map[string]string{}
	for _, m := range all {
		inside[filepath.Clean(m.Inside)] = m.Host
	}
	for _, m := range slices.Clone(all) {
		for _, path := range found {
			own, err := filepath.Rel(m.Host, path)
			if m.ReadOnly || err != nil || !filepath.IsLocal(own) {
				continue
			}
			for at, rest := "", own; rest != ""; {
				var part string
				part, rest, _ = strings.Cut(rest, "/")
				at = filepath.Join(at, part)
				in, host := filepath.Join(m.Inside, at), filepath.Join(m.Host, at)
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

// writable are the paths of this machine that can be written to.
func writable(all []Mount) (paths []string) {
	for _, m := range all {
		if !m.ReadOnly {
			paths = append(paths, m.Host)
		}
	}
	return paths
}

// protected are the paths of this machine that can only be read.
func protected(all []Mount) (paths []string) {
	for _, m := range all {
		if m.ReadOnly {
			paths = append(paths, m.Host)
		}
	}
	return paths
}

// NewRepositories returns what makes repositories of directories of this machine that the sandbox can write to, and was not there when the sandbox was made: each .git, and the HEAD of each bare
// repository. Their settings may be the sandbox's, and git on this machine runs programs by them. It returns at most 100 paths after at most 10 seconds; all is false if there may be more.
func (sb *Sandbox) NewRepositories(ctx context.Context) (paths []string, all bool) {
	s := sb.Spec()
	mounts := s.named()
	return gitguard.Appeared(ctx, writable(mounts), protected(mounts))
}

// guard completes the mounts of a complete spec.
func (s *Spec) guard(ctx context.Context) error {
	own := s.named()
	all, err := guarded(ctx, own)
	if err != nil {
		return fmt.Errorf("sandbox %s is %w: %w", s.Name, ErrSpec, err)
	}
	s.Mounts = append(s.Mounts, all[len(own):]...)
	return nil
}

// named are the mounts without those that a worktree is made of.
func (s *Spec) named() []Mount {
	return slices.DeleteFunc(slices.Clone(s.Mounts), func(m Mount) bool { return s.Worktree != "" && worktree.IsPart(m.Inside) })
}

// mountable returns an error if the mounts of a sandbox that has ended are not what they were.
func (sb *Sandbox) mountable(ctx context.Context) error {
	s := sb.Spec()
	if err := sameMounts(s.Mounts); err != nil {
		return err
	}
	if err := stillGuarded(ctx, s.named()); err != nil {
		return err
	}
	if s.Worktree == "" {
		return nil
	}
	return worktree.Of(sb.m.state, s.Name, s.Worktree).Guard(ctx)
}

// stillGuarded returns an error if git on this machine takes something since the mounts were made that can be written to there.
func stillGuarded(ctx context.Context, all []Mount) error {
	if len(writable(all)) == 0 {
		return nil
	}
	if err := gitguard.Check(ctx, writable(all), protected(all)); err != nil {
		return &kindError{ErrSpec, fmt.Errorf("%w: %w", runtime.ErrMount, err)}
	}
	return nil
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
