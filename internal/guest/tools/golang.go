package tools

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// golang is Go's own download of toolchains: the go command fetches a module and checks it against the
// checksum database.
type golang struct{}

func (golang) String() string { return "Go's toolchains" }

// toolchains is the module whose versions are toolchains.
const toolchains = "golang.org/toolchain"

// goProgram ensures that a go command exists. Any since 1.21 can fetch others.
func (golang) goProgram(ctx context.Context, b *Tools, t *tool) error {
	if b.version(ctx, t, b.path()) != "" {
		return nil
	}
	return b.apt.Install(ctx, []string{"golang-go"})
}

// environ makes the go command keep all its files below dir.
func (golang) environ(dir string) []string {
	return []string{
		"GOPATH=" + filepath.Join(dir, ".go"), "GOMODCACHE=" + filepath.Join(dir, ".go/mod"), "GOCACHE=" + filepath.Join(dir, ".go/cache"),
		"GOENV=off", "GOFLAGS=-modcacherw", "GOWORK=off", "GO111MODULE=on", "GOTOOLCHAIN=local",
	}
}

func (w golang) list(ctx context.Context, b *Tools, t *tool) ([]string, error) {
	if err := w.goProgram(ctx, b, t); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(b.Dir, unfinished)
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	out, err := b.run(ctx, dir, w.environ(dir), "go", "list", "-m", "-versions", toolchains)
	if err != nil {
		return nil, fmt.Errorf("the module proxy is unreachable: %w", brief(err))
	}
	var list []string
	for v := range strings.FieldsSeq(string(out)) {
		v, of := strings.CutPrefix(v, "v0.0.1-go")
		if v, here := strings.CutSuffix(v, ".linux-"+runtime.GOARCH); of && here {
			list = append(list, v)
		}
	}
	return list, nil
}

// fill does what the go command does when it switches toolchains: that command would also run the toolchain
// as root, which must only be fetched.
func (w golang) fill(ctx context.Context, b *Tools, _ *tool, version, dir string) error {
	module := fmt.Sprintf("toolchain@v0.0.1-go%s.linux-%s", version, runtime.GOARCH)
	if _, err := b.run(ctx, dir, w.environ(dir), "go", "mod", "download", "golang.org/"+module); err != nil {
		return fmt.Errorf("fetch the toolchain go%s: %w", version, brief(err))
	}
	root := filepath.Join(dir, ".go/mod/golang.org", module)
	for _, programs := range []string{"bin/*", "pkg/tool/*/*"} { // a module's files are not executable
		files, err := filepath.Glob(filepath.Join(root, programs))
		for _, f := range files {
			err = errors.Join(err, os.Chmod(f, 0o755))
		}
		if err != nil {
			return err
		}
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := os.Rename(filepath.Join(root, e.Name()), filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return os.RemoveAll(filepath.Join(dir, ".go"))
}
