//go:build e2e

package e2e

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha1" // Maven's checksums
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"errors"
	"fmt"
	"html"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
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
	"github.com/sandbox-agent/sandbox-agent/internal/version"
)

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
		all.wheels += " python3-flake8 python3-pycodestyle python3-pyflakes python3-mccabe"
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
	srv := &httptest.Server{Listener: l, Config: &http.Server{Handler: served}}
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
			fmt.Fprintf(w, "%x", sha1.Sum([]byte(content))) // Maven's checksums
		default:
			_, _ = io.WriteString(w, content)
		}
	})
}
