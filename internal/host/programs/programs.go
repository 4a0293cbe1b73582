// Package programs finds the programs guest and entrypoint, which run inside sandboxes. Releases and builds by make embed
// them. For importers of the module and after `go install` they are built once from the same version of the module.
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

	found sync.Map // []byte by name
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
func (f *Finder) Guest(ctx context.Context, arch string, progress func(string)) ([]byte, error) {
	return f.find(ctx, guest, arch, progress)
}

// Entrypoint is Guest for the program of a box's image.
func (f *Finder) Entrypoint(ctx context.Context, arch string, progress func(string)) ([]byte, error) {
	return f.find(ctx, entrypoint, arch, progress)
}

// PackedGuest is Guest, but does not unpack an embedded guest.
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
