package tools

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

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

// data returns mise's installation directory. Tools contain the path for which they were built, so programs
// are linked from here and stay here.
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
