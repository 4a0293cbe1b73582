//go:build e2e

package e2e

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha1" //nolint:gosec // Maven's own sums
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
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
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
	image  func(t *testing.T) mirror // of the box; nil means foundBox
	checks []string                  // that pass, in their order
	red    []string                  // that fail as before: their reasons lie in how the project was published, or in what this network lacks
	// warnings is how much of what was found cannot be had.
	warnings int
	// again starts a second task, which asks the mirror for nothing.
	again bool
}

// TestRealProjects starts a task in real projects without a project file, each in a repository that was made a moment ago. They are as
// their authors published them, but for what is said at the row.
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
			"ruby":                     {files: source("rake"), image: gemBox, checks: []string{"lint", "test"}},
			// Its tests have the address of Redis written in them; the compose file is ours.
			"compose": {files: with(released(lockModule), "compose.yaml", "services: {redis: {image: "+redisImage+", ports: ['6379:6379']}}"), checks: []string{"test", "vet"}},
			// The image of its database lies in a registry, and its setup wants the place that the editor gives it.
			"devcontainer": {files: released("github.com/microsoft/go-mssqldb@v1.11.2"), checks: []string{"vet"}, red: []string{"test"}, warnings: 2},
			// Folders that its tests look for are modules of their own, which its author's archive has not.
			"red before": {files: released("github.com/stretchr/testify@v1.10.0"), checks: []string{"vet"}, red: []string{"test"}},
			// The plugin that uploads its releases is left out: the distribution has none, and Maven reads it before anything else.
			"java": {files: without("jsemver", "pom.xml", uploads), image: mavenBox, checks: []string{"test"}, again: true},
			"php":  {files: source("php-zumba-json-serializer"), image: composerBox, checks: []string{"test"}, again: true},
			// Its pyproject.toml names the index, and its lock file is made anew.
			"poetry": {files: poetryLocked("python-async-interrupt"), image: pypiBox, checks: []string{"test"}},
		})
	}
	u := newUser(t, "ANTHROPIC_API_KEY=sk-ant-none")
	foundImage(t, u)
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mine := *u
			mine.t = t
			box := mirror{image: foundBox}
			if row.image != nil {
				box = row.image(t)
			}
			mine.dir = mine.repo(row.files(t))
			c := mine.run("", "create", "--task", "x", "--image", box.image)
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
			if !row.again {
				return
			}
			before := box.asked.Load()
			if c := mine.run("", "create", "--task", "y", "--image", box.image); c.code != 0 {
				t.Errorf("second task: exit code %d", c.code)
			}
			if asked := box.asked.Load(); before == 0 || asked != before {
				t.Errorf("the mirror was asked %d times by the first task, and %d times by the second", before, asked-before)
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
		files := below(distribution(t).files, "sources/"+name)
		if len(files) == 0 {
			t.Fatalf("the distribution has no source of %s", name)
		}
		return files
	}
}

// uploads is the plugin of a pom.xml that brings releases to Maven Central.
var uploads = regexp.MustCompile(`\s*<plugin>\s*<groupId>org\.sonatype\.plugins</groupId>(?s:.*?)</plugin>`)

// without are the files of a source package, one of them without a part.
func without(name, file string, part *regexp.Regexp) func(t *testing.T) map[string]string {
	return func(t *testing.T) map[string]string {
		t.Helper()
		files := source(name)(t)
		rest := part.ReplaceAllString(files[file], "")
		if rest == files[file] {
			t.Fatalf("%s of %s has no such part", file, name)
		}
		files[file] = rest
		return files
	}
}

// poetryLocked are the files of a source package that name an index of the test's own, with the lock file that Poetry makes of it:
// Poetry takes no mirror from its surroundings, and the author's lock file has the sums of other files.
func poetryLocked(name string) func(t *testing.T) map[string]string {
	return func(t *testing.T) map[string]string {
		t.Helper()
		d, files := distribution(t), source(name)(t)
		files["pyproject.toml"] += "\n[[tool.poetry.source]]\nname = \"local\"\nurl = \"http://" + serve(t, index(below(d.files, "wheels"))) + "/simple/\"\n"
		locked := fmt.Sprintf("sandbox-agent-e2e-locked:%x", sha256.Sum256([]byte(files["pyproject.toml"])))
		if err := buildImage(t.Context(), locked, "FROM "+d.image+"\nRUN mkdir /locked && cd /locked && "+decoded(files["pyproject.toml"])+"cat >pyproject.toml && poetry lock\n"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { removeImage(t, locked) })
		made, err := filesOfImage(t.Context(), locked, "/locked")
		if err != nil {
			t.Fatal(err)
		}
		files["poetry.lock"] = made["locked/poetry.lock"]
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
	//go:embed testdata/composer.py
	makeComposer string
)

// ingredients are the source packages that rows need, and the packages that indexes are made of.
type ingredients struct{ sources, wheels, gems, jars, tools string }

func needed() ingredients {
	all := ingredients{sources: "rust-fnv python-slugify", wheels: "python3-text-unidecode"}
	if nightly {
		all.sources += " python-cachetools rake libsemver-java php-zumba-json-serializer python-async-interrupt"
		all.wheels += " python3-pytest python3-pluggy python3-iniconfig python3-pytest-cov python3-coverage"
		// What pytest needs elsewhere is in a lock file too.
		all.wheels += " python3-pytest-asyncio python3-packaging python3-exceptiongroup python3-tomli python3-colorama python3-typing-extensions"
		all.gems = "rubocop ruby-coveralls ruby-test-unit"
		all.jars = "libmaven-compiler-plugin-java libmaven-resources-plugin-java libmaven-jar-plugin-java libsurefire-java junit5"
		all.tools = "python3-poetry"
	}
	return all
}

// stock is an image of sources, wheels and the like, with its files by their path in it.
type stock struct {
	image string
	files map[string]string
}

// distribution is what rows take of the distribution. Sources come without what the distribution adds to them.
func distribution(t *testing.T) stock {
	t.Helper()
	s, err := distributionOnce()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// decoded is the beginning of a shell's line that gives a text to the command behind it.
func decoded(s string) string {
	return "echo " + base64.StdEncoding.EncodeToString([]byte(s)) + " | base64 -d | "
}

// unpacked is a shell's line that makes a folder of each author's archive, named like it up to a character.
func unpacked(upTo string) string {
	return "rm -f *.asc && for f in *.orig.tar.*; do mkdir ${f%%" + upTo + "*} && tar xf $f -C ${f%%" + upTo + "*} --strip-components=1 && rm $f || exit 1; done"
}

var distributionOnce = sync.OnceValues(func() (stock, error) {
	ctx, cancel := context.WithTimeout(context.Background(), insideLimit)
	defer cancel()
	base, err := provision.EnsureBase(ctx, eng, provision.Options{Version: version.Get().Version, StateDir: scratch})
	if err != nil {
		return stock{}, err
	}
	need := needed()
	dockerfile := "FROM " + base + "\n" +
		fmt.Sprintf(aptInstall, strings.Join([]string{"xz-utils python3-setuptools-whl python3-wheel-whl", need.wheels, need.gems, need.jars, need.tools}, " ")) +
		"RUN mkdir /wheels /sources /rubygems /maven /composer && cp /usr/share/python-wheels/*.whl /wheels && " + decoded(makeWheels) + "python3 - /wheels " + need.wheels + "\n" +
		"RUN cd /etc/apt && touch sources.list && sed -n 's/^deb /deb-src /p' sources.list >sources.list.d/e2e-src.list && " +
		"find . -name '*.sources' -exec sed -i 's/^Types: deb$/Types: deb deb-src/' {} + && apt-get update -q && cd /sources && " +
		"apt-get source -q --download-only --tar-only " + need.sources + " && " + unpacked("_") + "\n"
	if nightly {
		dockerfile += "RUN " + decoded(makeGems) + "ruby - /rubygems\n" +
			"RUN cp -rL /usr/share/maven-repo/. /maven\n" +
			"RUN cd /composer && apt-get source -q --download-only --tar-only " +
			"$(apt-get install -s --no-install-recommends phpunit | sed -n 's/^Inst \\(php[a-z-]*\\) .*/\\1/p') && " +
			unpacked(".orig") + " && " + decoded(makeComposer) + "python3 - /composer\n"
	}
	s := stock{image: fmt.Sprintf("sandbox-agent-e2e-sources:%x", sha256.Sum256([]byte(dockerfile)))}
	if _, err := eng.ImageInspect(ctx, s.image); err != nil {
		if err := buildImage(ctx, s.image, dockerfile); err != nil {
			return stock{}, fmt.Errorf("image of sources: %w", err)
		}
	}
	s.files, err = filesOfImage(ctx, s.image, "/sources", "/wheels", "/rubygems", "/maven", "/composer")
	return s, err
})

// filesOfImage are the files of folders of an image, by their path in it.
func filesOfImage(ctx context.Context, name string, folders ...string) (map[string]string, error) {
	c, err := eng.ContainerCreate(ctx, &container.Config{Image: name, Cmd: []string{"true"}}, nil, nil, nil, "")
	if err != nil {
		return nil, err
	}
	files := map[string]string{}
	for _, folder := range folders {
		if err = copied(ctx, c.ID, folder, files); err != nil {
			break
		}
	}
	return files, errors.Join(err, eng.ContainerRemove(ctx, c.ID, container.RemoveOptions{Force: true}))
}

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
func pypiBox(t *testing.T) mirror {
	t.Helper()
	return mirrorBox(t, index(below(distribution(t).files, "wheels")), func(host string) string {
		return "printf '[global]\\nindex-url = http://" + host + "/simple/\\ntrusted-host = " + host + "\\n' >/etc/pip.conf"
	})
}

// gemBox is foundBox with a mirror of rubygems.org of the test's own, of the same protocol (its compact index).
func gemBox(t *testing.T) mirror {
	t.Helper()
	return mirrorBox(t, serveFiles(below(distribution(t).files, "rubygems")), func(host string) string {
		return "mkdir /home/sandbox/.bundle && cd /home/sandbox/.bundle && " +
			"printf -- '---\\nBUNDLE_MIRROR__HTTPS://RUBYGEMS__ORG/: \"http://" + host + "\"\\n' >config && chown -R sandbox: ."
	})
}

// composerBox is foundBox with a mirror of Packagist of the test's own, of the same protocol (its packages.json).
func composerBox(t *testing.T) mirror {
	t.Helper()
	files := below(distribution(t).files, "composer")
	archives := serveFiles(files)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /packages.json", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, strings.ReplaceAll(files["packages.json"], "ARCHIVES", "http://"+r.Host)) // they have no relative addresses
	})
	mux.Handle("GET /", archives)
	return mirrorBox(t, mux, func(host string) string {
		return "mkdir /home/sandbox/.composer && cd /home/sandbox/.composer && printf '" +
			`{"config": {"secure-http": false}, "repositories": [{"packagist.org": false}, {"type": "composer", "url": "http://` + host + `"}]}` +
			"' >config.json && chown -R sandbox: ."
	})
}

// mavenBox is foundBox with a mirror of Maven Central of the test's own.
func mavenBox(t *testing.T) mirror {
	t.Helper()
	return mirrorBox(t, mavenRepository(below(distribution(t).files, "maven")), func(host string) string {
		return "mkdir /home/sandbox/.m2 && cd /home/sandbox/.m2 && printf '<settings><mirrors><mirror><id>e2e</id>" +
			"<mirrorOf>central</mirrorOf><url>http://" + host + "</url></mirror></mirrors></settings>' >settings.xml && chown -R sandbox: ."
	})
}

func serveFiles(content map[string]string) http.Handler {
	files := fstest.MapFS{}
	for name, content := range content {
		files[name] = &fstest.MapFile{Data: []byte(content)}
	}
	return http.FileServerFS(files)
}

// mirror is the image of a box that asks an index of the test's own.
type mirror struct {
	image string
	asked *atomic.Int64 // how often the index was
}

// serve makes a handler reachable for boxes until the test ends, and returns its host.
func serve(t *testing.T, served http.Handler) (host string) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", net.JoinHostPort(hostAddress(t), "0"))
	if err != nil {
		t.Fatal(err)
	}
	srv := &httptest.Server{Listener: l, Config: &http.Server{Handler: served}} //nolint:gosec // of a test
	srv.Start()
	t.Cleanup(srv.Close)
	return l.Addr().String()
}

// mirrorBox is foundBox, told by a command where an index of the test's own is.
func mirrorBox(t *testing.T, served http.Handler, tell func(host string) string) mirror {
	t.Helper()
	asked := &atomic.Int64{}
	host := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		served.ServeHTTP(w, r)
	}))
	name := foundBox + "-" + strings.ReplaceAll(host, ":", "-")
	if err := buildImage(t.Context(), name, "FROM "+foundBox+"\nRUN "+tell(host)+"\n"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { removeImage(t, name) })
	return mirror{name, asked}
}

func removeImage(t *testing.T, name string) {
	t.Helper()
	if _, err := eng.ImageRemove(context.WithoutCancel(t.Context()), name, image.RemoveOptions{Force: true}); err != nil {
		t.Error(err)
	}
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

// pomOf is the address of a pom: the folder of its artifact, the artifact and the version.
var pomOf = regexp.MustCompile(`^(.+/([^/]+))/([^/]+)/([^/]+)\.pom$`)

// mavenRepository serves the distribution's Maven repository, which has one version or two of an artifact. It answers for any other with
// one that is there, by Maven's own word for an artifact that moved. A pom without a jar is a parent, for which Maven has no such word,
// and is served as it is.
func mavenRepository(files map[string]string) http.Handler {
	find := func(name string) (string, bool) {
		if content, ok := files[name]; ok {
			return content, true
		}
		m := pomOf.FindStringSubmatch(name)
		if m == nil || m[4] != m[2]+"-"+m[3] {
			return "", false
		}
		folder, artifact, version := m[1], m[2], m[3]
		var jars, poms []string
		for name := range below(files, folder) {
			has, file, _ := strings.Cut(name, "/")
			switch file {
			case artifact + "-" + has + ".jar":
				jars = append(jars, has)
			case artifact + "-" + has + ".pom":
				poms = append(poms, has)
			}
		}
		switch {
		case len(jars) > 0:
			return "<project><modelVersion>4.0.0</modelVersion><groupId>" + strings.ReplaceAll(path.Dir(folder), "/", ".") + "</groupId><artifactId>" + artifact +
				"</artifactId><version>" + version + "</version><distributionManagement><relocation><version>" + slices.Max(jars) + "</version></relocation></distributionManagement></project>", true
		case len(poms) > 0:
			has := slices.Max(poms)
			return files[folder+"/"+has+"/"+artifact+"-"+has+".pom"], true
		}
		return "", false
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, sum := strings.CutSuffix(strings.TrimPrefix(r.URL.Path, "/"), ".sha1")
		content, ok := find(name)
		switch {
		case !ok:
			http.NotFound(w, r)
		case sum:
			fmt.Fprintf(w, "%x", sha1.Sum([]byte(content))) //nolint:gosec // Maven's own sums
		default:
			_, _ = io.WriteString(w, content)
		}
	})
}
