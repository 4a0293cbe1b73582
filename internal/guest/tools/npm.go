package tools

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/versionrange"
)

// npm is a package of the npm registry that contains the program itself: its scripts never run.
type npm struct {
	pkg string // ARCH is replaced by x64 or arm64
	// since is the first accepted version, and below the first that is too new; empty means no bound.
	since, below string
	// files maps programs to their paths in the package; nil means those that it declares.
	files map[string]string
}

func (w npm) String() string { return "npm package " + w.name() }

func (w npm) name() string {
	arch := "x64"
	if runtime.GOARCH == "arm64" {
		arch = "arm64"
	}
	return strings.ReplaceAll(w.pkg, "ARCH", arch)
}

func (w npm) list(ctx context.Context, b *Tools, _ *tool) ([]string, error) {
	out, err := b.run(ctx, "/", nil, "npm", "view", w.name(), "versions", "--json", "--loglevel=error")
	if err != nil {
		return nil, fmt.Errorf("the registry is unreachable: %w", npmError(out, err))
	}
	list, err := oneOrMore(out)
	if err != nil {
		return nil, fmt.Errorf("read the registry's answer: %w", err)
	}
	return slices.DeleteFunc(list, func(v string) bool {
		return w.since != "" && versionrange.Compare(v, w.since) < 0 || w.below != "" && versionrange.Compare(v, w.below) >= 0
	}), nil
}

// oneOrMore parses npm's JSON, in which a list of one is not a list.
func oneOrMore(out []byte) (list []string, err error) {
	one := ""
	if json.Unmarshal(out, &one) == nil {
		return []string{one}, nil
	}
	return list, json.Unmarshal(out, &list)
}

// npmError extracts npm's error code.
func npmError(out []byte, err error) error {
	var said struct {
		Error struct{ Code, Summary string }
	}
	if json.Unmarshal(out, &said) == nil && said.Error.Code != "" {
		return fmt.Errorf("%s: %s", said.Error.Code, said.Error.Summary)
	}
	return brief(err)
}

func (w npm) fill(ctx context.Context, b *Tools, _ *tool, version, dir string) error {
	cache := filepath.Join(dir, ".cache")
	out, err := b.run(
		ctx, dir, []string{"npm_config_cache=" + cache}, "npm", "install", "--prefix", dir, "--ignore-scripts", "--no-package-lock", "--no-audit",
		"--no-fund", "--json", "--loglevel=error", w.name()+"@"+version,
	)
	if err != nil {
		return fmt.Errorf("npm install %s@%s: %w", w.name(), version, npmError(out, err))
	}
	if err := os.RemoveAll(cache); err != nil {
		return err
	}
	pkg := filepath.Join(dir, "node_modules", w.name())
	files := w.files
	if files == nil {
		if files, err = declared(pkg); err != nil {
			return err
		}
	}
	at := map[string]string{}
	for name, path := range files {
		at[name] = filepath.Join(pkg, filepath.Join("/", path))
		if err := os.Chmod(at[name], 0o755); err != nil {
			return err
		}
	}
	return links(dir, at)
}

func declared(pkg string) (map[string]string, error) {
	text, err := os.ReadFile(filepath.Join(pkg, "package.json"))
	if err != nil {
		return nil, err
	}
	var m struct{ Bin map[string]string }
	if err := json.Unmarshal(text, &m); err != nil {
		return nil, fmt.Errorf("read package.json: %w", err)
	}
	for name := range m.Bin {
		if name != filepath.Base(name) || strings.HasPrefix(name, ".") {
			return nil, fmt.Errorf("%q is not a valid program name", name)
		}
	}
	return m.Bin, nil
}

// npmFor returns the newest npm that supports a version of Node and is not newer than the image's.
func npmFor(ctx context.Context, b *Tools, node string) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, lookTime, fmt.Errorf("it took longer than %s", lookTime))
	defer cancel()
	most := b.version(ctx, b.table["npm"], b.Path)
	out, err := b.run(ctx, "/", nil, "npm", "view", "npm@<="+most, "version", "engines.node", "--json", "--loglevel=error")
	if err != nil {
		return "", fmt.Errorf("the registry is unreachable: %w", npmError(out, err))
	}
	var list []struct {
		Version string `json:"version"`
		Node    string `json:"engines.node"`
	}
	if err := json.Unmarshal(out, &list); err != nil {
		return "", fmt.Errorf("read the registry's answer: %w", err)
	}
	var fit []string
	for _, n := range list {
		if r, err := versionrange.Parse(n.Node); err == nil && r.Has(node) {
			fit = append(fit, n.Version)
		}
	}
	all, err := versionrange.Parse("*")
	if newest := all.Newest(fit); err == nil && newest != "" {
		return newest, nil
	}
	return "", fmt.Errorf("no version up to %s runs on node %s", most, node)
}

// pip is a project of the Python package index, for the image's Python.
type pip struct{ project string }

func (w pip) String() string { return "Python package " + w.project }

func (w pip) list(ctx context.Context, b *Tools, _ *tool) ([]string, error) {
	out, err := b.run(ctx, "/", nil, "python3", "-m", "pip", "index", "versions", w.project, "--disable-pip-version-check", "--quiet")
	if err != nil {
		return nil, fmt.Errorf("the index is unreachable: %w", brief(err))
	}
	_, list, _ := strings.Cut(string(out), "Available versions:")
	list, _, _ = strings.Cut(strings.TrimSpace(list), "\n")
	return strings.Fields(strings.ReplaceAll(list, ",", " ")), nil
}

// fill creates a virtual environment. Its programs contain its path, so they are linked from there and stay there.
func (w pip) fill(ctx context.Context, b *Tools, t *tool, version, dir string) error {
	venv := filepath.Join(b.Dir, ".pip", w.project+"-"+version)
	if err := os.RemoveAll(venv); err != nil {
		return err
	}
	for _, argv := range [][]string{
		{"python3", "-m", "venv", venv},
		{
			filepath.Join(venv, "bin/python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-cache-dir",
			"--only-binary=:all:", w.project + "==" + version,
		},
	} {
		if _, err := b.run(ctx, "/", nil, argv...); err != nil {
			return fmt.Errorf("install %s %s: %w", w.project, version, brief(err))
		}
	}
	at := map[string]string{}
	for _, p := range t.programs {
		if file := filepath.Join(venv, "bin", p); exists(file) {
			at[p] = file
		}
	}
	return links(dir, at)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
