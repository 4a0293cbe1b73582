//go:build e2e

package e2e

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"errors"
	"fmt"
	"html"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"

	"github.com/sandbox-agent/sandbox-agent/internal/host/provision"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/internal/version"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// lockModule is a project whose tests talk to a Redis at an address that is written in them.
const lockModule = "github.com/bsm/redislock@v0.9.4"

// realProject is one of other people, as they published it.
type realProject struct {
	files  func(t *testing.T) map[string]string
	image  func(t *testing.T) string // of the box; nil means foundBox
	checks []string                  // that pass, in their order
	red    []string                  // that fail as before: their reasons lie in how the project was published, or in what this network lacks
	// warnings is how much of what was found cannot be had.
	warnings int
}

// TestRealProjects starts a task in real projects without a project file, each in a repository that was made a moment ago. Nothing of
// them is changed; what was added is said at the row.
func TestRealProjects(t *testing.T) {
	t.Parallel()
	rows := map[string]realProject{
		"rust":   {files: source("rust-fnv"), checks: []string{"test"}},
		"python": {files: source("python-slugify"), image: pypiBox, checks: []string{"test"}}, // setuptools, a dependency, unittest
	}
	if nightly {
		maps.Copy(rows, map[string]realProject{
			"go with dependencies":     {files: released("github.com/spf13/cobra@v1.9.1"), checks: []string{"test", "vet"}},
			"npm with development":     {files: packed("reusify@1.1.0"), checks: []string{"test-coverage", "test-typescript", "lint", "test", "typecheck"}},
			"npm with a hook":          {files: packed("split2@4.2.0"), checks: []string{"test", "lint"}}, // its tests run with each commit
			"pnpm":                     {files: locked("split2@4.2.0", "pnpm@10", "install", "--lockfile-only"), checks: []string{"test", "lint"}},
			"python with tox's pytest": {files: source("python-cachetools"), image: pypiBox, checks: []string{"test"}},
			// A workflow of its asks for a Ruby that no source here has.
			"ruby": {files: source("rake"), image: gemBox, checks: []string{"lint", "test"}, warnings: 1},
			// Its tests have the address of Redis written in them; the compose file is ours.
			"compose": {files: with(released(lockModule), "compose.yaml", "services: {redis: {image: "+redisImage+", ports: ['6379:6379']}}"), checks: []string{"test", "vet"}},
			// The image of its database lies in a registry, and its setup wants the place that the editor gives it.
			"devcontainer": {files: released("github.com/microsoft/go-mssqldb@v1.11.2"), checks: []string{"vet"}, red: []string{"test"}, warnings: 2},
			// Folders that its tests look for are modules of their own, which its author's archive has not.
			"red before": {files: released("github.com/stretchr/testify@v1.10.0"), checks: []string{"vet"}, red: []string{"test"}},
		})
	}
	u := newUser(t, "ANTHROPIC_API_KEY=sk-ant-none")
	foundImage(t, u)
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mine := *u
			mine.t = t
			box := foundBox
			if row.image != nil {
				box = row.image(t)
			}
			mine.dir = mine.repo(row.files(t))
			c := mine.run("", "create", "--task", "x", "--image", box)
			r := mine.result(c.task(t))
			if c.code != 0 || r.Status != workorder.StatusSuccess || len(r.Warnings) != row.warnings || (r.Reasons.Code() == workorder.ReasonAsBefore) != (len(row.red) > 0) {
				t.Errorf("exit code %d, status %s (%s), warnings %q", c.code, r.Status, r.Reasons, r.Warnings)
			}
			var passed, failed []string
			for _, v := range r.Validation {
				if v.Passed {
					passed = append(passed, v.Name)
				} else {
					failed = append(failed, v.Name)
				}
			}
			if !slices.Equal(passed, row.checks) || !slices.Equal(failed, row.red) {
				t.Errorf("checks %q passed and %q failed, want %q and %q", passed, failed, row.checks, row.red)
			}
			// Each was run on both sides, and ended as on the other.
			if r.Proof == nil || len(r.Proof.Checks) != len(row.checks)+len(row.red) {
				t.Fatalf("proof %+v", r.Proof)
			}
			for _, p := range r.Proof.Checks {
				if p.Transition != workorder.StillPasses && p.Transition != workorder.StillFails {
					t.Errorf("%s: %s", p.Name, p.Transition)
				}
			}
		})
	}
}

// released are the files of a Go module.
func released(name string) func(t *testing.T) map[string]string {
	return func(t *testing.T) map[string]string { t.Helper(); return module(t, name) }
}

// with adds a file.
func with(files func(t *testing.T) map[string]string, name, content string) func(t *testing.T) map[string]string {
	return func(t *testing.T) map[string]string {
		t.Helper()
		all := files(t)
		all[name] = content
		return all
	}
}

// packed are the files of an npm package.
func packed(name string) func(t *testing.T) map[string]string {
	return func(t *testing.T) map[string]string { t.Helper(); return npmPackage(t, name) }
}

// locked are the files of an npm package with the lock file that a package manager makes of it, since packages have none.
func locked(name, manager string, args ...string) func(t *testing.T) map[string]string {
	return func(t *testing.T) map[string]string {
		t.Helper()
		dir, files := t.TempDir(), fstest.MapFS{}
		for name, content := range npmPackage(t, name) {
			files[name] = &fstest.MapFile{Data: []byte(content), Mode: 0o644}
		}
		if err := os.CopyFS(dir, files); err != nil {
			t.Fatal(err)
		}
		if err := proc.Run(t.Context(), proc.Spec{Argv: append([]string{"npx", "--yes", manager}, args...), Dir: dir, Env: os.Environ(), Stderr: os.Stderr}); err != nil {
			t.Fatalf("%s: %v", manager, err)
		}
		return filesOf(t, dir)
	}
}

// source are the files of a source package of the distribution, as their author published them.
func source(name string) func(t *testing.T) map[string]string {
	return func(t *testing.T) map[string]string {
		t.Helper()
		files := below(distribution(t), "sources/"+name)
		if len(files) == 0 {
			t.Fatalf("the distribution has no source of %s", name)
		}
		return files
	}
}

// below are the files of a folder.
func below(files map[string]string, folder string) map[string]string {
	part := map[string]string{}
	for name, content := range files {
		if rest, ok := strings.CutPrefix(name, folder+"/"); ok {
			part[rest] = content
		}
	}
	return part
}

// What makes of the distribution's packages what their ecosystems' indexes hold.
var (
	//go:embed testdata/wheels.py
	makeWheels string
	//go:embed testdata/gems.rb
	makeGems string
)

// lists are the source packages that rows need, and the packages that wheels and gems are made of.
func lists() (sources, wheels, gems string) {
	sources, wheels = "rust-fnv python-slugify", "python3-text-unidecode"
	if nightly {
		sources += " python-cachetools rake"
		wheels += " python3-pytest python3-pluggy python3-iniconfig python3-pytest-cov python3-coverage"
		gems = "rubocop ruby-coveralls ruby-test-unit"
	}
	return sources, wheels, gems
}

// distribution are the files of an image of sources, wheels and gems, by their path in it. Sources come without what the distribution adds to them.
func distribution(t *testing.T) map[string]string {
	t.Helper()
	files, err := distributionOnce()
	if err != nil {
		t.Fatal(err)
	}
	return files
}

var distributionOnce = sync.OnceValues(func() (map[string]string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), insideLimit)
	defer cancel()
	base, err := provision.EnsureBase(ctx, eng, provision.Options{Version: version.Get().Version, StateDir: scratch})
	if err != nil {
		return nil, err
	}
	encoded := func(s string) string {
		return "echo " + base64.StdEncoding.EncodeToString([]byte(s)) + " | base64 -d | "
	}
	named, wheels, gems := lists()
	dockerfile := "FROM " + base + "\n" +
		fmt.Sprintf(aptInstall, "xz-utils python3-setuptools-whl python3-wheel-whl "+wheels+" "+gems) +
		"RUN mkdir /wheels /sources /rubygems && cp /usr/share/python-wheels/*.whl /wheels && " + encoded(makeWheels) + "python3 - /wheels " + wheels + "\n" +
		"RUN cd /etc/apt && touch sources.list && sed -n 's/^deb /deb-src /p' sources.list >sources.list.d/e2e-src.list && " +
		"find . -name '*.sources' -exec sed -i 's/^Types: deb$/Types: deb deb-src/' {} + && apt-get update -q && cd /sources && " +
		"apt-get source -q --download-only --tar-only " + named + " && " +
		"for f in *.orig.tar.*; do mkdir ${f%%_*} && tar xf $f -C ${f%%_*} --strip-components=1 && rm $f || exit 1; done\n"
	if gems != "" {
		dockerfile += "RUN " + encoded(makeGems) + "ruby - /rubygems\n"
	}
	sources := fmt.Sprintf("sandbox-agent-e2e-sources:%x", sha256.Sum256([]byte(dockerfile)))
	if _, err := eng.ImageInspect(ctx, sources); err != nil {
		if err := buildImage(ctx, sources, dockerfile); err != nil {
			return nil, fmt.Errorf("image of sources: %w", err)
		}
	}
	c, err := eng.ContainerCreate(ctx, &container.Config{Image: sources, Cmd: []string{"true"}}, nil, nil, nil, "")
	if err != nil {
		return nil, err
	}
	files := map[string]string{}
	for _, folder := range []string{"/sources", "/wheels", "/rubygems"} {
		if err = copied(ctx, c.ID, folder, files); err != nil {
			break
		}
	}
	return files, errors.Join(err, eng.ContainerRemove(ctx, c.ID, container.RemoveOptions{Force: true}))
})

// copied adds the files of a container's folder.
func copied(ctx context.Context, id, folder string, files map[string]string) error {
	r, _, err := eng.CopyFromContainer(ctx, id, folder)
	if err != nil {
		return err
	}
	defer r.Close()
	for in := tar.NewReader(r); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		var b bytes.Buffer
		if _, err := io.Copy(&b, in); err != nil {
			return err
		}
		files[h.Name] = b.String()
	}
}

// pypiBox is foundBox with a Python package index of the test's own, of the same protocol (PEP 503): the real one may be out of reach.
func pypiBox(t *testing.T) string {
	t.Helper()
	return mirrorBox(t, index(below(distribution(t), "wheels")), func(host string) string {
		return "printf '[global]\\nindex-url = http://" + host + "/simple/\\ntrusted-host = " + host + "\\n' >/etc/pip.conf"
	})
}

// gemBox is foundBox with a mirror of rubygems.org of the test's own, of the same protocol (its compact index).
func gemBox(t *testing.T) string {
	t.Helper()
	gems := fstest.MapFS{}
	for name, content := range below(distribution(t), "rubygems") {
		gems[name] = &fstest.MapFile{Data: []byte(content)}
	}
	return mirrorBox(t, http.FileServerFS(gems), func(host string) string {
		return "mkdir /home/sandbox/.bundle && cd /home/sandbox/.bundle && " +
			"printf -- '---\\nBUNDLE_MIRROR__HTTPS://RUBYGEMS__ORG/: \"http://" + host + "\"\\n' >config && chown -R sandbox: ."
	})
}

// mirrorBox is foundBox, told by a command where an index of the test's own is.
func mirrorBox(t *testing.T, served http.Handler, tell func(host string) string) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", net.JoinHostPort(hostAddress(t), "0"))
	if err != nil {
		t.Fatal(err)
	}
	srv := &httptest.Server{Listener: l, Config: &http.Server{Handler: served}} //nolint:gosec // of a test
	srv.Start()
	t.Cleanup(srv.Close)
	host := l.Addr().String()
	name := foundBox + "-" + strings.ReplaceAll(host, ":", "-")
	if err := buildImage(t.Context(), name, "FROM "+foundBox+"\nRUN "+tell(host)+"\n"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := eng.ImageRemove(context.WithoutCancel(t.Context()), name, image.RemoveOptions{Force: true}); err != nil {
			t.Error(err)
		}
	})
	return name
}

// index serves wheels as the Python package index does.
func index(wheels map[string]string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /simple/{project}/", func(w http.ResponseWriter, r *http.Request) {
		found := false
		for name := range wheels {
			project, _, _ := strings.Cut(name, "-")
			if strings.ReplaceAll(strings.ToLower(project), "_", "-") == r.PathValue("project") {
				found = true
				fmt.Fprintf(w, "<a href=\"/wheels/%s\">%s</a>\n", html.EscapeString(name), html.EscapeString(name))
			}
		}
		if !found {
			http.NotFound(w, r)
		}
	})
	mux.HandleFunc("GET /wheels/{name}", func(w http.ResponseWriter, r *http.Request) {
		content, ok := wheels[r.PathValue("name")]
		if !ok {
			http.NotFound(w, r)
			return
		}
		_, _ = io.WriteString(w, content)
	})
	return mux
}
