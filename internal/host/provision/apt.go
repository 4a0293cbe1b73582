package provision

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"

	"github.com/sandbox-agent/sandbox-agent/internal/archive"
)

type aptArchive struct {
	uri        string
	suites     []string
	components []string
	signedBy   string
	trusted    bool
}

// parseSources reads the binary archives from apt's files: *.list with one line each, *.sources with stanzas. A build can use only
// http and https archives.
func parseSources(files map[string]string) []aptArchive {
	var all []aptArchive
	for _, name := range sortedKeys(files) {
		if strings.HasSuffix(name, ".sources") {
			all = append(all, parseStanzas(files[name])...)
		} else {
			all = append(all, parseLines(files[name])...)
		}
	}
	return slices.DeleteFunc(all, func(a aptArchive) bool {
		u, err := url.Parse(a.uri)
		return err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == ""
	})
}

func parseLines(text string) []aptArchive {
	var all []aptArchive
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		rest, ok := strings.CutPrefix(strings.TrimSpace(line), "deb")
		if !ok || rest == "" || (rest[0] != ' ' && rest[0] != '\t') {
			continue
		}
		var a aptArchive
		rest = strings.TrimSpace(rest)
		if options, after, ok := strings.Cut(rest, "]"); ok && strings.HasPrefix(options, "[") {
			rest = after
			for o := range strings.FieldsSeq(options[1:]) {
				k, v, _ := strings.Cut(o, "=")
				a.option(k, v)
			}
		}
		f := strings.Fields(rest)
		if len(f) < 2 {
			continue
		}
		a.uri, a.suites, a.components = f[0], f[1:2], f[2:]
		all = append(all, a)
	}
	return all
}

func parseStanzas(text string) []aptArchive {
	var all []aptArchive
	for stanza := range strings.SplitSeq(strings.ReplaceAll(text, "\r\n", "\n"), "\n\n") {
		fields := map[string]string{}
		last := ""
		for line := range strings.Lines(stanza) {
			switch {
			case strings.HasPrefix(line, "#"):
			case line[0] == ' ' || line[0] == '\t':
				fields[last] += " " + strings.TrimSpace(line)
			default:
				k, v, _ := strings.Cut(line, ":")
				last = strings.ToLower(strings.TrimSpace(k))
				fields[last] = strings.TrimSpace(v)
			}
		}
		if !slices.Contains(strings.Fields(fields["types"]), "deb") || strings.EqualFold(fields["enabled"], "no") {
			continue
		}
		for uri := range strings.FieldsSeq(fields["uris"]) {
			a := aptArchive{uri: uri, suites: strings.Fields(fields["suites"]), components: strings.Fields(fields["components"])}
			a.option("signed-by", fields["signed-by"])
			a.option("trusted", fields["trusted"])
			all = append(all, a)
		}
	}
	return all
}

func (a *aptArchive) option(k, v string) {
	switch strings.ToLower(k) {
	case "signed-by":
		// For an embedded key the keyring's own key is used.
		if strings.HasPrefix(v, "/") && !strings.ContainsAny(v, " ,") {
			a.signedBy = v
		}
	case "trusted":
		a.trusted = v == "yes"
	}
}

// plan describes how to create a base from the host's package archives.
type plan struct {
	distro  string // debian or ubuntu
	suite   string
	mirror  string
	keyring string // "" means debootstrap's choice
	trusted bool
	sources string // the base's sources.list
}

var (
	errNoArchive = errors.New("no package archive of Debian or Ubuntu in this machine's apt sources")
	errSystem    = errors.New("a base needs Debian or Ubuntu on this machine")
)

// planBase chooses the suite, and its archives on the hosts of this machine's own release. osID and codename are from os-release.
func planBase(osID string, like []string, codename string, all []aptArchive) (plan, error) {
	p := plan{distro: "debian", suite: "trixie"}
	components := "main"
	if osID == "ubuntu" || slices.Contains(like, "ubuntu") {
		p.distro, p.suite, components = "ubuntu", "noble", "main universe"
	} else if osID != "debian" && !slices.Contains(like, "debian") {
		return plan{}, fmt.Errorf("%w, which is %s", errSystem, osID)
	}
	main, ok := findMain(all, p.distro, codename)
	if !ok {
		return plan{}, errNoArchive
	}
	p.mirror, p.keyring, p.trusted = strings.TrimRight(main.uri, "/"), main.signedBy, main.trusted
	option := ""
	if main.trusted {
		option = "[trusted=yes] "
	}
	line := func(uri, suite string) {
		p.sources += fmt.Sprintf("deb %s%s %s %s\n", option, strings.TrimRight(uri, "/"), suite, components)
	}
	line(main.uri, p.suite)
	line(main.uri, p.suite+"-updates")
	if security, ok := findSuite(all, codename+"-security"); ok {
		line(security.uri, p.suite+"-security")
	}
	return p, nil
}

// findMain finds the archive of the release. A host on a rolling release has no codename; its archive has the usual path.
func findMain(all []aptArchive, distro, codename string) (aptArchive, bool) {
	if codename != "" {
		if a, ok := findSuite(all, codename); ok && slices.Contains(a.components, "main") {
			return a, true
		}
	}
	for _, a := range all {
		if strings.HasSuffix(strings.TrimRight(a.uri, "/"), "/"+distro) && slices.Contains(a.components, "main") {
			return a, true
		}
	}
	return aptArchive{}, false
}

// findSuite finds an archive by suite. It prefers the distribution's own to a third party's, which can use the same codename.
func findSuite(all []aptArchive, suite string) (aptArchive, bool) {
	match := slices.DeleteFunc(slices.Clone(all), func(a aptArchive) bool {
		return !slices.Contains(a.suites, suite) || !slices.Contains(a.components, "main")
	})
	for _, a := range match {
		if strings.Contains(a.uri, "debian") || strings.Contains(a.uri, "ubuntu") {
			return a, true
		}
	}
	if len(match) > 0 {
		return match[0], true
	}
	return aptArchive{}, false
}

const (
	rootDeadline = 5 * time.Minute // for Root: some 300 MB over the engine's socket
	// Limits of a root directory.
	maxRootFiles  = 1_000_000
	maxRootBytes  = 20 << 30
	cleanUp       = 30 * time.Second
	labelUnpacked = "sandbox-agent.unpacked" // of a container that is only read
)

// rootPaths are the directories with an image's programs and their requirements.
var rootPaths = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc"}

// Root unpacks an image's programs and their requirements into an existing directory. It runs nothing of the image.
func (i Images) Root(ctx context.Context, image, dir string) error {
	return i.unpacked(ctx, image, func(ctx context.Context, id string) error {
		for _, p := range rootPaths {
			err := i.copied(ctx, id, p, func(r io.Reader) error {
				limits := archive.Options{Exact: true, MaxFiles: maxRootFiles, MaxBytes: maxRootBytes}
				_, err := archive.Unpack(filepath.Join(dir, path.Dir(p)), r, limits)
				return err
			})
			if err != nil && !cerrdefs.IsNotFound(err) {
				return fmt.Errorf("%s: %w", p, err)
			}
		}
		return nil
	})
}

// ReadFiles calls read with a tar of a file or directory, if the image has it. It runs nothing of the image.
func (i Images) ReadFiles(ctx context.Context, image, path string, read func(io.Reader) error) (found bool, err error) {
	err = i.unpacked(ctx, image, func(ctx context.Context, id string) error {
		err := i.copied(ctx, id, path, read)
		found = !cerrdefs.IsNotFound(err)
		if !found {
			return nil
		}
		return err
	})
	return found, err
}

// unpacked calls use with the id of a container of an image that does not run.
func (i Images) unpacked(ctx context.Context, image string, use func(ctx context.Context, id string) error) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, rootDeadline, fmt.Errorf("image %s not unpacked within %s", image, rootDeadline))
	defer cancel()
	if err := i.dropLeft(ctx); err != nil {
		return fmt.Errorf("unpack image %s: %w", image, orCause(ctx, err))
	}
	made, err := i.Client.ContainerCreate(ctx, &container.Config{
		Image: image, Cmd: []string{"true"},
		Labels: map[string]string{labelUnpacked: ""},
	}, nil, nil, nil, "")
	if err != nil {
		return fmt.Errorf("unpack image %s: %w", image, orCause(ctx, err))
	}
	defer func() {
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUp)
		defer cancel()
		err = errors.Join(err, i.Client.ContainerRemove(clean, made.ID, container.RemoveOptions{Force: true, RemoveVolumes: true}))
	}()
	if err := use(ctx, made.ID); err != nil {
		return fmt.Errorf("unpack image %s: %w", image, orCause(ctx, err))
	}
	return nil
}

// copied calls read with a tar of a file, directory or link of a container.
func (i Images) copied(ctx context.Context, id, from string, read func(io.Reader) error) error {
	r, _, err := i.Client.CopyFromContainer(ctx, id, from)
	if err != nil {
		return err
	}
	defer r.Close()
	return read(r)
}

// dropLeft removes containers that a killed Root has left.
func (i Images) dropLeft(ctx context.Context) error {
	left, err := i.Client.ContainerList(ctx, container.ListOptions{All: true, Filters: filters.NewArgs(filters.Arg("label", labelUnpacked))})
	if err != nil {
		return err
	}
	for _, c := range left {
		if time.Since(time.Unix(c.Created, 0)) < rootDeadline+cleanUp {
			continue // its Root may be running
		}
		if err := i.Client.ContainerRemove(ctx, c.ID, container.RemoveOptions{Force: true, RemoveVolumes: true}); err != nil &&
			!cerrdefs.IsNotFound(err) {
			return err
		}
	}
	return nil
}
