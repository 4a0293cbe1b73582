package programs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/image"
	"github.com/sandbox-agent/sandbox-agent/internal/host/lockfile"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
)

const (
	modulePath   = "github.com/sandbox-agent/sandbox-agent"
	buildTimeout = 15 * time.Minute // of a build with its downloads, or of the wait for another process that builds
	buildGrace   = 5 * time.Second  // for the Go toolchain to remove its temporary files
	keyLength    = 16               // hexadecimal digits of a module's hash in its directory's name
)

// source is a version of a module in a module proxy.
type source struct {
	Path, Version string
	Sum           string // as in go.sum; "" if unknown
}

// builtWith returns the running program's version of this module, or nil for a build of a checkout, which no proxy has.
func builtWith() *source {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return nil
	}
	if info.Main.Path == modulePath {
		if info.Main.Sum == "" {
			return nil
		}
		return &source{modulePath, info.Main.Version, info.Main.Sum}
	}
	i := slices.IndexFunc(info.Deps, func(d *debug.Module) bool { return d.Path == modulePath })
	if i < 0 {
		return nil
	}
	d := info.Deps[i]
	if d.Replace != nil {
		d = d.Replace
	}
	if d.Version == "" || d.Version == "(devel)" {
		return nil
	}
	return &source{d.Path, d.Version, d.Sum}
}

// kept returns a module's program, and builds it if needed. It never replaces a program that another process may be mounting.
func (f *Finder) kept(ctx context.Context, m source, program, arch string, progress func(string)) ([]byte, error) {
	key := sha256.Sum256([]byte(m.Path + "@" + m.Version + " " + m.Sum))
	dir := filepath.Join(f.Dir, hex.EncodeToString(key[:])[:keyLength])
	path := filepath.Join(dir, program+"-linux-"+arch)
	b, err := os.ReadFile(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return b, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("save the program %s: %w", program, err)
	}
	ctx, cancel := context.WithTimeout(ctx, buildTimeout)
	defer cancel()
	lock, err := lockfile.Take(ctx, filepath.Join(dir, ".lock"))
	if err != nil {
		return nil, fmt.Errorf("build the program %s: %w", program, err)
	}
	defer lock.Release()
	if b, err := os.ReadFile(path); !errors.Is(err, fs.ErrNotExist) { // another process built it meanwhile
		return b, err
	}
	if progress != nil {
		progress(fmt.Sprintf("building %s for linux/%s from %s@%s (once)", program, arch, m.Path, m.Version))
	}
	if err := m.build(ctx, dir, program, arch, path); err != nil {
		return nil, fmt.Errorf("%w for linux/%s, and building it failed: %w (install Go and allow the module proxy, "+
			"or name a directory of programs with %s)",
			image.ErrNoEntrypoint, arch, err, EnvDir)
	}
	return os.ReadFile(path)
}

// build builds the file path in dir, which the caller has locked. The module's own go.sum decides the dependencies.
func (m source) build(ctx context.Context, dir, program, arch, path string) error {
	source, err := m.download(ctx, dir)
	if err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(dir, ".build-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	made := filepath.Join(tmp, program)
	_, err = toolchain(ctx, source, []string{"CGO_ENABLED=0", "GOOS=linux", "GOARCH=" + arch},
		"build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", made, "./cmd/"+program)
	if err != nil {
		return err
	}
	if err := syncFile(made); err != nil {
		return err
	}
	return os.Rename(made, path)
}

// download returns the directory of the module's source, which must have the sum of this program's build.
func (m source) download(ctx context.Context, dir string) (string, error) {
	var env []string
	if m.Sum != "" { // it is stricter than a checksum database
		env = append(env, "GONOSUMDB="+strings.TrimPrefix(os.Getenv("GONOSUMDB")+","+m.Path, ","))
	}
	out, err := toolchain(ctx, dir, env, "mod", "download", "-json", m.Path+"@"+m.Version)
	var got struct{ Dir, Sum, Error string }
	if jerr := json.Unmarshal(out, &got); err == nil {
		err = jerr
	}
	switch {
	case got.Error != "":
		return "", errors.New(got.Error)
	case err != nil:
		return "", err
	case m.Sum != "" && got.Sum != m.Sum:
		return "", fmt.Errorf("%s@%s has checksum %s, and this program was built with %s", m.Path, m.Version, got.Sum, m.Sum)
	}
	return got.Dir, nil
}

// toolchain runs the go command with the user's proxies and toolchains, but without his flags, targets and workspaces.
func toolchain(ctx context.Context, dir string, env []string, args ...string) ([]byte, error) {
	flags := "GOFLAGS=-mod=readonly"
	if strings.Contains(os.Getenv("GOFLAGS"), "-modcacherw") {
		flags += " -modcacherw"
	}
	return proc.Output(ctx, proc.Spec{
		Argv: append([]string{"go"}, args...), Dir: dir, Env: slices.Concat(os.Environ(), []string{
			"GO111MODULE=on", "GOWORK=off", "PWD=" + dir,
			flags,
		}, env), Grace: buildGrace,
	})
}

// syncFile makes a file durable before it is renamed.
func syncFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
