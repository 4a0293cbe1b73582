package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
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

// guarded are mounts with the repositories in each folder that can be written to, read-only: hooks and settings in them would run on this machine. The folders above a
// repository are mounts of their own, which nobody in the sandbox can move away to put another in its place.
func guarded(all []Mount) ([]Mount, error) {
	inside := map[string]bool{}
	for _, m := range all {
		inside[filepath.Clean(m.Inside)] = true
	}
	for _, m := range slices.Clone(all) {
		if m.ReadOnly {
			continue
		}
		found, err := repositories(m.Host)
		if err != nil {
			return nil, fmt.Errorf("mount of %s at %s: %w: %w", m.Host, m.Inside, runtime.ErrMount, err)
		}
		for _, own := range found {
			for at, rest := "", own; rest != ""; {
				var part string
				part, rest, _ = strings.Cut(rest, "/")
				at = filepath.Join(at, part)
				if in := filepath.Join(m.Inside, at); !inside[in] {
					inside[in] = true
					all = append(all, Mount{filepath.Join(m.Host, at), in, rest == ""})
				}
			}
		}
	}
	return all, nil
}

// maxRepositories bounds what is guarded in one folder.
const maxRepositories = 100

// repositories are the paths in a folder which git takes for repositories, or for the places of some: each .git, bare ones, and submodules that are not checked out.
func repositories(top string) (found []string, err error) {
	st, err := os.Stat(top)
	if err != nil || !st.IsDir() {
		return nil, nil //nolint:nilerr // what cannot be mounted is said elsewhere
	}
	dir, err := filepath.EvalSymlinks(top)
	if err != nil {
		return nil, err
	}
	for ; ; dir = filepath.Dir(dir) {
		if bare(dir) {
			return nil, errors.New("it is a bare repository, or in a .git: hooks and settings in it run on this machine: mount it read-only, with :ro, or take a clone of it, by --repo")
		}
		if dir == filepath.Dir(dir) {
			break
		}
	}
	planned := submodules(top)
	err = filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return fs.SkipDir // who cannot read it has no repository there
		}
		rel, _ := filepath.Rel(top, path) // it is below
		_, gitErr := os.Lstat(filepath.Join(path, ".git"))
		switch {
		case d.Name() == ".git" && path != top:
			if d.Type()&fs.ModeSymlink != 0 {
				return fmt.Errorf("%s is a link, which the sandbox could not be kept from following: mount the folder read-only, with :ro, or take a clone, by --repo", path)
			}
		case d.IsDir() && path != top && (bare(path) || planned[rel] && gitErr != nil):
		default:
			return nil
		}
		if found = append(found, rel); len(found) > maxRepositories {
			return fmt.Errorf("it has more than %d repositories in it: mount those that are meant, each with a name of its own", maxRepositories)
		}
		if d.IsDir() {
			return fs.SkipDir
		}
		return nil
	})
	return found, err
}

// bare reports whether git takes a folder itself for a repository.
func bare(dir string) bool {
	return !slices.ContainsFunc([]string{"HEAD", "objects", "refs"}, func(name string) bool {
		_, err := os.Lstat(filepath.Join(dir, name))
		return err != nil
	})
}

// submodules are the paths that a folder's .gitmodules names. Where nothing is checked out git would take what the sandbox puts there.
func submodules(top string) map[string]bool {
	all := map[string]bool{}
	text, _ := os.ReadFile(filepath.Join(top, ".gitmodules")) // most have none
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(line, "=")
		if strings.EqualFold(strings.TrimSpace(key), "path") {
			all[filepath.Clean(strings.Trim(strings.TrimSpace(value), `"`))] = true
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
