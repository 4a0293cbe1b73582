package tools

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// golang is Go's own download of toolchains: a module, checked against the checksum database.
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

// fill does what the go command does when it switches toolchains, without running the toolchain as root.
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

// mise is a tool manager from npm, which fetches tools from their publishers.
type mise struct{ tool string }

func (mise) String() string { return "mise" }

func (mise) program(ctx context.Context, b *Tools) error {
	if b.mise != "" {
		return nil
	}
	own := &tool{name: "mise", programs: []string{"mise"}, ways: []way{npm{pkg: "@jdxcode/mise-linux-ARCH"}}}
	if miss := b.one(ctx, own, "*"); miss != nil {
		return &Error{[]Missing{*miss}}
	}
	var err error
	if b.mise, err = filepath.EvalSymlinks(filepath.Join(b.Dir, "bin", "mise")); err != nil {
		b.mise = "mise" // the image's own
	}
	b.unlink(own) // not requested by the project
	return nil
}

// data returns mise's installation directory, in which tools stay because they contain its path.
func (mise) data(b *Tools) string { return filepath.Join(b.Dir, ".mise") }

func (w mise) environ(b *Tools) []string {
	d := w.data(b)
	return []string{
		"MISE_DATA_DIR=" + d, "MISE_CACHE_DIR=" + filepath.Join(d, "cache"), "MISE_CONFIG_DIR=" + filepath.Join(d, "config"),
		"MISE_STATE_DIR=" + filepath.Join(d, "state"), "MISE_RUSTUP_HOME=" + filepath.Join(d, "rustup"),
		"MISE_CARGO_HOME=" + filepath.Join(d, "cargo"), "MISE_YES=1", "MISE_QUIET=1", "NO_COLOR=1",
	}
}

func (w mise) list(ctx context.Context, b *Tools, _ *tool) ([]string, error) {
	if err := w.program(ctx, b); err != nil {
		return nil, err
	}
	out, err := b.run(ctx, "/", w.environ(b), b.mise, "ls-remote", w.tool)
	if err != nil {
		return nil, fmt.Errorf("its sources are unreachable: %w", brief(err))
	}
	return strings.Fields(string(out)), nil
}

func (w mise) fill(ctx context.Context, b *Tools, t *tool, version, dir string) error {
	if _, err := b.run(ctx, "/", w.environ(b), b.mise, "install", w.tool+"@"+version); err != nil {
		return fmt.Errorf("mise install %s@%s: %w", w.tool, version, brief(err))
	}
	out, err := b.run(ctx, "/", w.environ(b), b.mise, "where", w.tool+"@"+version)
	if err != nil {
		return fmt.Errorf("mise where %s@%s: %w", w.tool, version, brief(err))
	}
	at := map[string]string{}
	for _, bin := range []string{
		filepath.Join(strings.TrimSpace(string(out)), "bin"), strings.TrimSpace(string(out)),
		filepath.Join(w.data(b), "rustup/toolchains", version+"-*", "bin"),
	} {
		files, err := filepath.Glob(filepath.Join(bin, "*"))
		if err != nil {
			return err
		}
		for _, f := range files {
			if st, err := os.Stat(f); err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
				at[filepath.Base(f)] = f
			}
		}
	}
	if !slices.ContainsFunc(t.programs, func(p string) bool { return at[p] != "" }) {
		return fmt.Errorf("mise installed no %s", strings.Join(t.programs, " or "))
	}
	return links(dir, at)
}
