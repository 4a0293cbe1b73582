//go:build release

// Package released checks what `make release` left in dist/, which runs it at its end: whether each file is what a person
// takes it for, and works where it is unpacked.
package released

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

const dist = "../../dist"

// match returns the one file of dist that a pattern names.
func match(t *testing.T, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dist, pattern))
	if err != nil || len(found) != 1 {
		t.Fatalf("dist/%s: %d files, want one: %q %v", pattern, len(found), found, err)
	}
	return found[0]
}

// places are the systems that a release is for.
var places = []string{"linux_amd64", "linux_arm64", "darwin_amd64", "darwin_arm64"}

func TestArchives(t *testing.T) {
	t.Parallel()
	for _, place := range places {
		t.Run(place, func(t *testing.T) {
			t.Parallel()
			files := untar(t, match(t, "sandbox-agent_*_"+place+".tar.gz"))
			for _, name := range []string{
				"README.md", "CHANGELOG.md", "docs/install.md", "man/man1/sandbox-agent.1",
				"man/man1/sandbox-agent-create.1", "completions/sandbox-agent.bash", "completions/_sandbox-agent", "completions/sandbox-agent.fish",
			} {
				if b, err := os.ReadFile(filepath.Join(files, name)); err != nil || len(b) == 0 {
					t.Errorf("%s: %d bytes, %v", name, len(b), err)
				}
			}
			checkBinary(t, filepath.Join(files, "sandbox-agent"), place)
		})
	}
}

func TestDebs(t *testing.T) {
	t.Parallel()
	for _, arch := range []string{"amd64", "arm64"} {
		t.Run(arch, func(t *testing.T) {
			t.Parallel()
			deb := match(t, "sandbox-agent_*_"+arch+".deb")
			if got := strings.TrimSpace(output(t, "dpkg-deb", "-f", deb, "Architecture")); got != arch {
				t.Errorf("the package says it is for %s", got)
			}
			list := output(t, "dpkg-deb", "-c", deb)
			for _, name := range []string{
				"/usr/bin/sandbox-agent", "/usr/share/man/man1/sandbox-agent.1.gz", "/usr/share/man/man1/sandbox-agent-create.1.gz",
				"/usr/share/bash-completion/completions/sandbox-agent", "/usr/share/zsh/vendor-completions/_sandbox-agent",
				"/usr/share/fish/vendor_completions.d/sandbox-agent.fish",
			} {
				if !strings.Contains(list, "."+name+"\n") {
					t.Errorf("%s is not in the package:\n%s", name, list)
				}
			}
			checkHeaders(t, strings.NewReader(output(t, "dpkg-deb", "--fsys-tarfile", deb)), func(*tar.Header, io.Reader) {})
			root := t.TempDir()
			output(t, "dpkg-deb", "-x", deb, root)
			checkBinary(t, filepath.Join(root, "usr/bin/sandbox-agent"), "linux_"+arch)
		})
	}
}

// checkBinary: it is for its place and of a known commit, carries the guest for both architectures, and works where it can run here.
func checkBinary(t *testing.T, path, place string) {
	t.Helper()
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	set := map[string]string{}
	for _, s := range info.Settings {
		set[s.Key] = s.Value
	}
	if got := set["GOOS"] + "_" + set["GOARCH"]; got != place || set["vcs.revision"] == "" || set["-trimpath"] != "true" ||
		set["CGO_ENABLED"] != "0" {
		t.Errorf("built for %s: %v", got, set)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, arch := range []string{"amd64", "arm64"} {
		if !strings.Contains(string(whole), string(guest(t, arch))) {
			t.Errorf("it does not carry the guest for linux/%s", arch)
		}
	}
	if place != runtime.GOOS+"_"+runtime.GOARCH {
		return
	}
	var version struct{ Version, Revision, Platform string }
	if err := json.Unmarshal([]byte(output(t, path, "version", "--json")), &version); err != nil {
		t.Fatal(err)
	}
	if version.Version != info.Main.Version || version.Version == "devel" || version.Revision != set["vcs.revision"] {
		t.Errorf("it says %+v", version)
	}
	t.Logf("%s version: %s", filepath.Base(path), strings.TrimSpace(output(t, path, "version")))
}

// guest is the guest's program as a CLI carries it: compressed.
func guest(t *testing.T, arch string) []byte {
	t.Helper()
	b, err := os.ReadFile("../../.cache/release/entrypoint-linux-" + arch + ".gz")
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestSums(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile(filepath.Join(dist, "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	var named []string
	for line := range strings.Lines(string(b)) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		content, err := os.ReadFile(filepath.Join(dist, name))
		if err != nil {
			t.Error(err)
			continue
		}
		if got := sha256.Sum256(content); hex.EncodeToString(got[:]) != sum {
			t.Errorf("%s: another sum than in SHA256SUMS", name)
		}
		named = append(named, name)
	}
	for _, pattern := range []string{"*.tar.gz", "*.deb", "*.spdx.json"} {
		files, err := filepath.Glob(filepath.Join(dist, pattern))
		if err != nil || len(files) == 0 {
			t.Errorf("dist/%s: %d files, %v", pattern, len(files), err)
		}
		for _, f := range files {
			if !slices.Contains(named, filepath.Base(f)) {
				t.Errorf("%s has no sum", f)
			}
		}
	}
}

// TestSBOMs: each names every module that the Go tool recorded in the program, by its version.
func TestSBOMs(t *testing.T) {
	t.Parallel()
	cli := func(place string) []string {
		return []string{filepath.Join(untar(t, match(t, "sandbox-agent_*_"+place+".tar.gz")), "sandbox-agent")}
	}
	check := func(name string, programs []string) {
		b, err := os.ReadFile(match(t, "sandbox-agent_*_"+name+".spdx.json"))
		if err != nil {
			t.Fatal(err)
		}
		var doc struct {
			Version  string `json:"spdxVersion"`
			Packages []struct {
				Name    string `json:"name"`
				Version string `json:"versionInfo"`
			} `json:"packages"`
		}
		if err := json.Unmarshal(b, &doc); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !strings.HasPrefix(doc.Version, "SPDX-2.") {
			t.Errorf("%s is of format %q", name, doc.Version)
		}
		has := map[string]bool{}
		for _, p := range doc.Packages {
			has[p.Name+" "+p.Version] = true
		}
		modules := 0
		for _, program := range programs {
			info, err := buildinfo.ReadFile(program)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range info.Deps {
				if modules++; !has[m.Path+" "+m.Version] {
					t.Errorf("%s: %s %s is not named", name, m.Path, m.Version)
				}
			}
		}
		if modules == 0 {
			t.Errorf("%s: the program has no modules", name)
		}
		t.Logf("%s: %s, %d packages, %d modules of the program", name, doc.Version, len(doc.Packages), modules)
	}
	for _, place := range places {
		check(place, cli(place))
	}
	check("guest", []string{"../../.cache/release/guest/entrypoint-linux-amd64", "../../.cache/release/guest/entrypoint-linux-arm64"})
}

// untar unpacks an archive, which has one folder at its top, and returns that.
func untar(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	checkHeaders(t, z, func(h *tar.Header, r io.Reader) {
		if h.Typeflag != tar.TypeReg {
			return
		}
		b, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := root.MkdirAll(filepath.Dir(h.Name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := root.WriteFile(h.Name, b, h.FileInfo().Mode().Perm()); err != nil {
			t.Fatal(err)
		}
	})
	return filepath.Join(dir, strings.TrimSuffix(filepath.Base(path), ".tar.gz"))
}

// checkHeaders visits the files of a tar stream: all are root's, may be read by everybody, and have one time, the commit's.
func checkHeaders(t *testing.T, stream io.Reader, visit func(*tar.Header, io.Reader)) {
	t.Helper()
	var first *tar.Header
	for r := tar.NewReader(stream); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = h
		}
		if h.Uname != "root" || h.Mode&0o444 != 0o444 || !h.ModTime.Equal(first.ModTime) {
			t.Errorf("%s belongs to %q, mode %o, of %v; the first is of %v", h.Name, h.Uname, h.Mode, h.ModTime, first.ModTime)
		}
		visit(h, r)
	}
}

func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %q: %v", name, args, err)
	}
	return string(out)
}

// TestDemo runs the demo of the unpacked archive where no Go is found, on the engine that is running.
func TestDemo(t *testing.T) {
	files := untar(t, match(t, "sandbox-agent_*_linux_"+runtime.GOARCH+".tar.gz"))
	bin := t.TempDir()
	for _, name := range []string{"git", "sh"} {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(files, "sandbox-agent"), "demo")
	cmd.Env = []string{"PATH=" + bin, "HOME=" + t.TempDir()}
	for _, name := range []string{"DOCKER_HOST", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS"} {
		if v, ok := os.LookupEnv(name); ok {
			cmd.Env = append(cmd.Env, name+"="+v)
		}
	}
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Fatal(err)
	}
}
