package tools

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/internal/versions"
)

// unfinished starts the names of incomplete directories, which a killed install may leave. They are ignored.
const unfinished = ".new-"

var (
	folderName = regexp.MustCompile(`^[0-9][A-Za-z0-9._+-]{0,60}$`)
	said       = regexp.MustCompile(`[0-9]+(?:\.[0-9]+)+(?:[-.]?(?:alpha|beta|rc|a|b|canary|next)[-.]?[0-9]*)?|\b[0-9]+\b`)
)

// begin creates the directories, and removes the links of an earlier run and the leftovers of a killed
// install.
func (b *Tools) begin() error {
	bin := filepath.Join(b.Dir, "bin")
	if err := errors.Join(os.RemoveAll(bin), os.MkdirAll(bin, 0o755)); err != nil {
		return err
	}
	left, err := filepath.Glob(filepath.Join(b.Dir, unfinished+"*"))
	for _, dir := range left {
		err = errors.Join(err, os.RemoveAll(dir))
	}
	return err
}

// kept returns the newest version in the directory that satisfies r and runs; empty if there is none.
func (b *Tools) kept(ctx context.Context, t *tool, r versions.Range) string {
	entries, err := os.ReadDir(filepath.Join(b.Dir, t.name))
	if err != nil {
		return ""
	}
	var list []string
	for _, e := range entries {
		list = append(list, e.Name())
	}
	for {
		newest := r.Newest(list)
		if newest == "" || r.Has(b.version(ctx, t, filepath.Join(b.Dir, t.name, newest, "bin")+":"+b.path())) {
			return newest
		}
		list = slices.DeleteFunc(list, func(s string) bool { return s == newest })
	}
}

// link links the programs of a version into the common directory bin.
func (b *Tools) link(t *tool, version string) error {
	programs, err := os.ReadDir(filepath.Join(b.Dir, t.name, version, "bin"))
	if err != nil {
		return err
	}
	for _, p := range programs {
		at := filepath.Join(b.Dir, "bin", p.Name())
		if err := os.Remove(at); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := os.Symlink(filepath.Join("..", t.name, version, "bin", p.Name()), at); err != nil {
			return err
		}
	}
	return nil
}

// unlink removes the links to a tool in any version.
func (b *Tools) unlink(t *tool) {
	links, _ := os.ReadDir(filepath.Join(b.Dir, "bin")) // begin created it
	for _, l := range links {
		at := filepath.Join(b.Dir, "bin", l.Name())
		if to, err := os.Readlink(at); err == nil && strings.HasPrefix(to, filepath.Join("..", t.name)+"/") {
			os.Remove(at)
		}
	}
}

// version returns the version that the tool's first program on a path reports; empty if it does not exist or
// run.
func (b *Tools) version(ctx context.Context, t *tool, path string) string {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	asks := t.asks
	if asks == nil {
		asks = []string{"--version"}
	}
	out := proc.NewTail(4 << 10)
	env := b.environ("PATH="+path, "GOTOOLCHAIN=local")
	err := proc.Run(ctx, proc.Spec{Argv: append([]string{t.programs[0]}, asks...), Dir: "/", Env: env, User: b.User, Stdout: out, Stderr: out})
	if err != nil {
		return ""
	}
	v := said.FindString(out.String())
	if rest, old := strings.CutPrefix(v, "1."); old && t.name == "java" {
		v = rest // Java 8 reports 1.8
	}
	return v
}

// environ returns the environment of programs that root runs here; later variables win.
func (b *Tools) environ(more ...string) []string {
	last := map[string]string{}
	for _, kv := range slices.Concat(os.Environ(), []string{"PATH=" + b.Path, "LC_ALL=C.UTF-8", "HOME=" + b.home()}, more) {
		k, _, _ := strings.Cut(kv, "=")
		last[k] = kv
	}
	var env []string
	for _, kv := range last {
		env = append(env, kv)
	}
	return env
}

// run runs a program as root, outside any repository.
func (b *Tools) run(ctx context.Context, dir string, env []string, argv ...string) ([]byte, error) {
	out, err := proc.Output(ctx, proc.Spec{Argv: argv, Dir: dir, Env: b.environ(env...)})
	if err != nil {
		b.logf("%s: %v", strings.Join(argv, " "), err)
	}
	return out, err
}

// links links programs into dir/bin, by their paths.
func links(dir string, at map[string]string) error {
	bin := filepath.Join(dir, "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return err
	}
	for name, path := range at {
		if _, err := os.Stat(path); err != nil {
			return err
		}
		if rel, err := filepath.Rel(bin, path); err == nil && strings.HasPrefix(path, dir+"/") {
			path = rel // relative, because the directory will be renamed
		}
		if err := os.Symlink(path, filepath.Join(bin, name)); err != nil {
			return err
		}
	}
	return nil
}
