// Package programs finds the programs that run inside sandboxes: guest and entrypoint. A release and a build by make
// carry them. A module from a proxy cannot: for a Go program that imports it, and after `go install`, they are built
// once from the same version of the module and kept in the state directory.
package programs

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/sandbox-agent/sandbox-agent/image"
)

// EnvDir names the variable with a directory of programs, for those that set no Finder.Given.
const EnvDir = "SANDBOX_AGENT_PROGRAMS"

// The programs, as their packages below cmd are named.
const (
	guest      = "guest"
	entrypoint = "entrypoint"
)

// Finder finds programs. The zero value knows those that this program carries.
type Finder struct {
	// Given, if non-nil, has the programs as files NAME-linux-ARCH, such as guest-linux-amd64. Nothing else is then used.
	Given fs.FS
	// Dir is where built programs are kept, with mode 0700; "" means that none is built.
	Dir string
	// source is where programs are built from; nil means the module that this program was built with. Tests set it.
	source *source

	found sync.Map // []byte by name
}

// New returns a Finder of the programs in given, or else in the directory that EnvDir names; it keeps what it builds
// in the state directory.
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

// Guest returns the guest for an architecture, named as Go names it. Before it is built, progress, if non-nil, receives a line.
func (f *Finder) Guest(ctx context.Context, arch string, progress func(string)) ([]byte, error) {
	return f.find(ctx, guest, arch, progress)
}

// Entrypoint is Guest for the program of the box's image.
func (f *Finder) Entrypoint(ctx context.Context, arch string, progress func(string)) ([]byte, error) {
	return f.find(ctx, entrypoint, arch, progress)
}

// PackedGuest is Guest without unpacking a guest that this program carries.
func (f *Finder) PackedGuest(ctx context.Context, arch string, progress func(string)) (image.PackedGuest, error) {
	if f.Given == nil {
		if p, err := image.Packed(arch); !errors.Is(err, image.ErrNoEntrypoint) {
			return p, err
		}
	}
	b, err := f.find(ctx, guest, arch, progress)
	if err != nil {
		return image.PackedGuest{}, err
	}
	sum := sha256.Sum256(b)
	return image.PackedGuest{Hash: hex.EncodeToString(sum[:]), Size: int64(len(b)), Unpack: func() ([]byte, error) { return b, nil }}, nil
}

func (f *Finder) find(ctx context.Context, program, arch string, progress func(string)) ([]byte, error) {
	name := program + "-linux-" + arch
	if b, ok := f.found.Load(name); ok {
		return b.([]byte), nil
	}
	b, err := f.read(ctx, program, arch, progress)
	if err == nil {
		f.found.Store(name, b)
	}
	return b, err
}

func (f *Finder) read(ctx context.Context, program, arch string, progress func(string)) ([]byte, error) {
	name := program + "-linux-" + arch
	if f.Given != nil {
		b, err := fs.ReadFile(f.Given, name)
		if err != nil {
			return nil, fmt.Errorf("read the given program %s: %w", name, err)
		}
		return b, nil
	}
	b, err := image.Program(program, arch)
	if !errors.Is(err, image.ErrNoEntrypoint) {
		return b, err
	}
	m := cmp.Or(f.source, builtWith())
	if m == nil || f.Dir == "" {
		return nil, err
	}
	return f.kept(ctx, *m, program, arch, progress)
}
