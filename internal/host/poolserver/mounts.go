package poolserver

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/sandbox"
	"github.com/sandbox-agent/sandbox-agent/sandbox/pool"
)

// Source is a directory or file of this machine that leases may mount, with everything below it.
type Source struct {
	// Path is absolute and has no symbolic link in it.
	Path     string
	ReadOnly bool
}

// NewSource reads DIR or DIR:ro. Symbolic links in DIR are resolved now, once.
func NewSource(text string) (Source, error) {
	dir, ro := strings.CutSuffix(text, ":ro")
	if !filepath.IsAbs(dir) {
		return Source{}, fmt.Errorf("%q must be an absolute path", dir)
	}
	p, err := filepath.EvalSymlinks(dir)
	return Source{p, ro}, err
}

// permit returns the spec with symbolic links in its paths resolved, or an error that names each path that no source covers.
func permit(s pool.Spec, sources []Source) (pool.Spec, error) {
	var errs []error
	resolve := func(path string, readOnly bool) string {
		p, err := filepath.EvalSymlinks(path)
		if err != nil {
			errs = append(errs, err)
			return path
		}
		for _, src := range sources {
			if (p == src.Path || strings.HasPrefix(p, strings.TrimSuffix(src.Path, "/")+"/")) && (readOnly || !src.ReadOnly) {
				return p
			}
		}
		flag := p
		if readOnly {
			flag += ":ro"
		}
		errs = append(errs, fmt.Errorf("the pool does not allow %s in a lease: serve it with --allow-mount %s", p, flag))
		return path
	}
	s.Mounts = append([]sandbox.Mount(nil), s.Mounts...)
	for i, m := range s.Mounts {
		s.Mounts[i].Source = resolve(m.Source, m.ReadOnly)
	}
	if s.Root != "" {
		s.Root = resolve(s.Root, true)
	}
	if err := errors.Join(errs...); err != nil {
		return s, fmt.Errorf("what is asked of the pool is %w: %w", sandbox.ErrSpec, err)
	}
	return s, nil
}
