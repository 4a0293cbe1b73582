package tools

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/internal/versionrange"
)

// distribution provides packages of the image's distribution that have the tool's own version.
type distribution struct {
	// pkg matches their names. FIRST below is replaced by its first group.
	pkg *lazyregexp.Pattern
	// with lists packages that are installed with it.
	with []string
	// at maps programs to their paths. ARCH is replaced by amd64 or arm64; * means all programs of a directory.
	at map[string]string
}

func (distribution) String() string { return "distribution" }

type offer struct{ pkg, full string }

var upstream = lazyregexp.New(`^(?:[0-9]+:)?([0-9]+(?:\.[0-9]+)*)`)

func (w distribution) offers(ctx context.Context, b *Tools) (map[string]offer, error) {
	if err := b.apt.Update(ctx); err != nil {
		return nil, fmt.Errorf("its archive is unreachable: %w", err)
	}
	out, err := b.run(ctx, "/", nil, "apt-cache", "pkgnames")
	if err != nil {
		return nil, err
	}
	names := slices.DeleteFunc(strings.Fields(string(out)), func(n string) bool { return !w.pkg.MatchString(n) })
	if len(names) == 0 {
		return nil, nil
	}
	out, err = b.run(ctx, "/", nil, append([]string{"apt-cache", "madison", "--"}, names...)...)
	if err != nil {
		return nil, err
	}
	all := map[string]offer{}
	for line := range strings.Lines(string(out)) {
		fields := strings.Split(line, "|")
		if len(fields) < 3 || !strings.Contains(fields[2], "Packages") {
			continue
		}
		name, full := strings.TrimSpace(fields[0]), strings.TrimSpace(fields[1])
		if m := upstream.FindStringSubmatch(full); m != nil && all[m[1]] == (offer{}) {
			all[m[1]] = offer{name, full}
		}
	}
	return all, nil
}

func (w distribution) list(ctx context.Context, b *Tools, _ *tool) (list []string, err error) {
	all, err := w.offers(ctx, b)
	return slices.Collect(maps.Keys(all)), err
}

func (w distribution) fill(ctx context.Context, b *Tools, _ *tool, version, dir string) error {
	all, err := w.offers(ctx, b)
	if err != nil {
		return err
	}
	o := all[version]
	first := ""
	if m := w.pkg.FindStringSubmatch(o.pkg); len(m) > 1 {
		first = m[1]
	}
	names := strings.NewReplacer("FIRST", first, "ARCH", runtime.GOARCH)
	packages := []string{o.pkg + "=" + o.full}
	for _, p := range w.with {
		packages = append(packages, names.Replace(p))
	}
	if err := b.apt.Install(ctx, packages); err != nil {
		return err
	}
	at := map[string]string{}
	for name, place := range w.at {
		place = names.Replace(place)
		if name != "*" {
			at[names.Replace(name)] = place
			continue
		}
		found, err := filepath.Glob(place)
		if err != nil {
			return err
		}
		for _, f := range found {
			at[filepath.Base(f)] = f
		}
	}
	return links(dir, at)
}

// unfinished starts the names of incomplete directories, which a killed install may leave. They are ignored.
const unfinished = ".new-"

var (
	dirName = lazyregexp.New(`^[0-9][A-Za-z0-9._+-]{0,60}$`)
	said    = lazyregexp.New(`[0-9]+(?:\.[0-9]+)+(?:[-.]?(?:alpha|beta|rc|a|b|canary|next)[-.]?[0-9]*)?|\b[0-9]+\b`)
)

// begin creates the directories, and removes the links of an earlier run and the leftovers of a killed install.
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
func (b *Tools) kept(ctx context.Context, t *tool, r versionrange.Range) string {
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

func (b *Tools) unlink(t *tool) {
	links, _ := os.ReadDir(filepath.Join(b.Dir, "bin")) // begin created it
	for _, l := range links {
		at := filepath.Join(b.Dir, "bin", l.Name())
		if to, err := os.Readlink(at); err == nil && strings.HasPrefix(to, filepath.Join("..", t.name)+"/") {
			os.Remove(at)
		}
	}
}

// version returns the version that the tool's first program on a path reports; empty if it does not exist or run.
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
	return slices.Collect(maps.Values(last))
}

// run runs a program as root, outside any repository.
func (b *Tools) run(ctx context.Context, dir string, env []string, argv ...string) ([]byte, error) {
	out, err := proc.Output(ctx, proc.Spec{Argv: argv, Dir: dir, Env: b.environ(env...)})
	if err != nil {
		b.logf("%s: %v", strings.Join(argv, " "), err)
	}
	return out, err
}

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
