package tools

import (
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
)

// distribution provides packages of the image's distribution that have the tool's own version.
type distribution struct {
	// pkg matches their names. FIRST below is replaced by its first group.
	pkg *regexp.Regexp
	// with lists packages that are installed with it.
	with []string
	// at maps programs to their paths. ARCH is replaced by amd64 or arm64. A path with * means all programs of a
	// directory.
	at map[string]string
}

func (distribution) String() string { return "distribution" }

// offer is a version of a package.
type offer struct{ pkg, full string }

var upstream = regexp.MustCompile(`^(?:[0-9]+:)?([0-9]+(?:\.[0-9]+)*)`)

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
	for v := range all {
		list = append(list, v)
	}
	return list, err
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
