// Package programs finds the programs guest and entrypoint, which run inside sandboxes. Releases and builds by make embed
// them. For importers of the module and after `go install` they are built once from the same version of the module.
package programs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/sandbox-agent/sandbox-agent/image"
)

// EnvDir is the variable that names a directory of programs; Finder.Given takes precedence.
const EnvDir = "SANDBOX_AGENT_PROGRAMS"

// The programs are named as their packages below cmd.
const (
	guest      = "guest"
	entrypoint = "entrypoint"
)

// Finder finds programs. The zero value finds embedded ones.
type Finder struct {
	// Given, if non-nil, is used alone. It has files NAME-linux-ARCH, such as guest-linux-amd64.
	Given fs.FS
	Dir   string // for built programs, with mode 0700; "" builds none
	// source is the module to build from; nil means this program's. Tests set it.
	source *source

	found sync.Map // image.Packed by name
}

// New returns a Finder of given, or of the directory that EnvDir names. It saves built programs in the state directory.
func New(given fs.FS, getenv func(string) string, stateDir string) *Finder {
	f := &Finder{Given: given}
	if dir := getenv(EnvDir); given == nil && dir != "" {
		f.Given = os.DirFS(dir)
	}
	if stateDir != "" {
		f.Dir = filepath.Join(stateDir, "programs")
	}
	return f
}

// Guest returns the guest for a GOARCH. progress, if non-nil, receives a line before a build.
func (f *Finder) Guest(ctx context.Context, arch string, progress func(string)) (image.Packed, error) {
	return f.find(ctx, guest, arch, progress)
}

// Entrypoint is Guest for the program of a box's image.
func (f *Finder) Entrypoint(ctx context.Context, arch string, progress func(string)) (image.Packed, error) {
	return f.find(ctx, entrypoint, arch, progress)
}

func (f *Finder) find(ctx context.Context, program, arch string, progress func(string)) (image.Packed, error) {
	name := program + "-linux-" + arch
	if p, ok := f.found.Load(name); ok {
		return p.(image.Packed), nil
	}
	p, err := f.read(ctx, program, arch, progress)
	if err == nil {
		p.Unpack = sync.OnceValues(p.Unpack)
		f.found.Store(name, p)
	}
	return p, err
}

func (f *Finder) read(ctx context.Context, program, arch string, progress func(string)) (image.Packed, error) {
	name := program + "-linux-" + arch
	if f.Given != nil {
		b, err := fs.ReadFile(f.Given, name)
		if err != nil {
			return image.Packed{}, fmt.Errorf("read the given program %s: %w", name, err)
		}
		return image.Of(b), nil
	}
	p, err := image.Program(program, arch)
	if !errors.Is(err, image.ErrNoEntrypoint) {
		return p, err
	}
	m := cmp.Or(f.source, builtWith())
	if m == nil || f.Dir == "" {
		return p, err
	}
	b, err := f.kept(ctx, *m, program, arch, progress)
	return image.Of(b), err
}
