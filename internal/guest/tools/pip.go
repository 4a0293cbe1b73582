package tools

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

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

// fill creates a virtual environment. Its programs contain its path, so they are linked from there and stay
// there.
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
