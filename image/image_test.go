package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

func testSource() *Source {
	return From(fstest.MapFS{
		"Dockerfile":                 {Data: []byte(testDockerfile)},
		"build/a.sh":                 {Data: []byte("a\n")},
		"build/b.sh":                 {Data: []byte("b\n")},
		"build/c.sh":                 {Data: []byte("c\n")},
		"build/unused.sh":            {Data: []byte("d\n")},
		"packages/package-lock.json": {Data: []byte(testLock)},
		"rootfs/etc/gitconfig":       {Data: []byte("[a]\n")},
	}, new(Of([]byte("ELF"))))
}

const (
	testDockerfile = `FROM x
COPY build/a.sh packages/p /tmp/
# part b
COPY build/b.sh packages/@q/ /tmp/
# part c
COPY build/c.sh /tmp/
# always
COPY rootfs/ /
`
	testLock = `{"packages":{"":{},"node_modules/p":{"version":"1","integrity":"sha512-p"},"node_modules/p/node_modules/r":{"version":"2"},
"node_modules/@q/alias":{"name":"@q/q","version":"3","integrity":"sha512-q"}}}`
)

// contextOf lists a context as "mode name content", folders without content.
func contextOf(t *testing.T, s *Source, h Host) []string {
	t.Helper()
	var b bytes.Buffer
	if err := s.WriteContext(&b, h); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for r := tar.NewReader(&b); ; {
		hdr, err := r.Next()
		if errors.Is(err, io.EOF) {
			return lines
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, strings.TrimSpace(hdr.FileInfo().Mode().String()+" "+hdr.Name+" "+strings.TrimSpace(string(content))))
	}
}

func TestContext(t *testing.T) {
	got := contextOf(t, testSource().With([]string{"b"}), Host{
		CAs:      map[string][]byte{"../b.crt": []byte("B"), "a.crt": []byte("A")},
		Registry: "https://npm.example/",
	})
	want := []string{
		"-rw-r--r-- Dockerfile FROM x\nCOPY build/a.sh packages/p /tmp/\n# part b\nCOPY build/b.sh packages/@q/ /tmp/\n# always\nCOPY rootfs/ /",
		"-rw-r--r-- build/a.sh a",
		"-rw-r--r-- build/b.sh b",
		"-rw-r--r-- packages/@q/alias @q/q 3 sha512-q",
		"-rw-r--r-- packages/p p 1 sha512-p",
		"-rw-r--r-- rootfs/etc/gitconfig [a]",
		"-rwxr-xr-x entrypoint/entrypoint ELF",
		"drwxr-xr-x host/ca/",
		// A name cannot leave its folder.
		"-rw-r--r-- host/ca/b.crt B",
		"-rw-r--r-- host/ca/a.crt A",
		"-rw-r--r-- host/npmrc registry=https://npm.example/",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if got := contextOf(t, testSource(), Host{}); got[len(got)-1] != "-rw-r--r-- host/npmrc" {
		t.Errorf("without a registry the last entry is %q, want an empty npmrc", got[len(got)-1])
	}
}

func TestContextIsStable(t *testing.T) {
	h := Host{CAs: map[string][]byte{"c.crt": {1}, "b.crt": {2}, "a.crt": {3}}}
	var first, second bytes.Buffer
	if err := testSource().WriteContext(&first, h); err != nil {
		t.Fatal(err)
	}
	if err := testSource().WriteContext(&second, h); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("two contexts of the same content differ")
	}
}

func TestHash(t *testing.T) {
	hash := func(change func(*Source)) string {
		s := testSource()
		change(s)
		h, err := s.Hash()
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	files := func(s *Source) fstest.MapFS { return s.files.(fstest.MapFS) }
	plain := hash(func(*Source) {})
	if plain != hash(func(*Source) {}) {
		t.Error("the hash of the same content differs")
	}
	if len(plain) != hashLength {
		t.Errorf("hash %q has not %d characters", plain, hashLength)
	}
	seen := map[string]string{plain: "plain"}
	for name, change := range map[string]func(*Source){
		"entrypoint": func(s *Source) { s.entrypoint = new(Of([]byte("ELG"))) },
		"content":    func(s *Source) { files(s)["build/a.sh"].Data = []byte("b\n") },
		"name": func(s *Source) {
			files(s)["rootfs/b"] = files(s)["rootfs/etc/gitconfig"]
			delete(files(s), "rootfs/etc/gitconfig")
		},
		"more": func(s *Source) { files(s)["rootfs/x"] = &fstest.MapFile{} },
		"package": func(s *Source) {
			files(s)["packages/package-lock.json"].Data = []byte(`{"packages":{"node_modules/p":{"version":"2"}}}`)
		},
		"part": func(s *Source) { *s = *s.With([]string{"c"}) },
		// The same bytes in a row, cut elsewhere.
		"cut": func(s *Source) {
			files(s)["rootfs/a"], files(s)["rootfs/b"] = &fstest.MapFile{Data: []byte("xy")}, &fstest.MapFile{Data: []byte("z")}
		},
		"cut elsewhere": func(s *Source) {
			files(s)["rootfs/a"], files(s)["rootfs/b"] = &fstest.MapFile{Data: []byte("x")}, &fstest.MapFile{Data: []byte("yz")}
		},
	} {
		h := hash(change)
		if other, there := seen[h]; there {
			t.Errorf("%s has the hash of %s", name, other)
		}
		seen[h] = name
	}
	// What the image does not copy does not change its name.
	for name, change := range map[string]func(*Source){
		"other part": func(s *Source) { files(s)["build/b.sh"].Data = []byte("x\n") },
		"unused":     func(s *Source) { files(s)["build/unused.sh"].Data = []byte("x\n") },
	} {
		if hash(change) != plain {
			t.Errorf("%s: the hash changed", name)
		}
	}
}

// What is carried says what it is before it is unpacked, and is nothing else.
func TestPacked(t *testing.T) {
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	if _, err := w.Write([]byte("ELF")); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	h := fmt.Sprintf("%x", sha256.Sum256([]byte("ELF")))
	for sum, ok := range map[string]bool{h: true, strings.Repeat("0", len(h)): false} {
		p, err := packed(fstest.MapFS{
			"entrypoint/guest-linux-arm64.gz":  {Data: z.Bytes()},
			"entrypoint/guest-linux-arm64.sum": {Data: []byte(sum + "\n")},
		}, "guest", "arm64")
		if err != nil || p.Hash != sum || p.Size != 3 {
			t.Fatalf("%+v, %v", p, err)
		}
		if b, err := p.Unpack(); (err == nil) != ok || ok && string(b) != "ELF" {
			t.Errorf("%q, %v", b, err)
		}
	}
	if _, err := packed(fstest.MapFS{}, "guest", "arm64"); !errors.Is(err, ErrNoEntrypoint) || !strings.Contains(err.Error(), "make build") {
		t.Error(err)
	}
}

// TestEmbedded checks that what the Dockerfile copies is embedded: embed leaves
// out names that start with a dot or an underscore.
func TestEmbedded(t *testing.T) {
	names := map[string]bool{}
	for _, line := range contextOf(t, Box(Of([]byte("x")), Parts()...), Host{}) {
		names[strings.Fields(line)[1]] = true
	}
	whole, err := fs.ReadFile(files, dockerfileName)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range append(copied(whole), "build/finish.sh", "packages/@openai/codex-linux-x64", "rootfs/etc/pip.conf") {
		if !strings.HasSuffix(want, "/") && !names[want] {
			t.Errorf("%s is not in the build context", want)
		}
	}
}

// TestParts checks that agents come before the browser, so that projects share layers, and that each part has its own layers.
func TestParts(t *testing.T) {
	all := Parts()
	if slices.Index(all, workorder.PartBrowser) != len(all)-1 || !slices.Contains(all, workorder.PartSupabase) {
		t.Errorf("parts %v: the browser is not the last one", all)
	}
	for _, name := range workorder.Harnesses() {
		if slices.Contains(all, name) != (name != workorder.HarnessCommand) {
			t.Errorf("harness %s in the parts %v", name, all)
		}
	}
	sets := Sets([]string{workorder.PartBrowser, workorder.HarnessCodex})
	if !slices.Equal(sets[0], []string{workorder.HarnessCodex, workorder.PartBrowser}) || len(sets) != 1<<(len(all)-2) ||
		!slices.Equal(sets[len(sets)-1], all) {
		t.Errorf("%v", sets)
	}
	whole, err := fs.ReadFile(files, dockerfileName)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(dockerfile(whole, all), whole) {
		t.Error("the Dockerfile with all parts is not the whole one")
	}
	none := dockerfile(whole, nil)
	for _, part := range all {
		if one := dockerfile(whole, []string{part}); len(one) <= len(none) || !bytes.Contains(one, []byte("RUN ")) || len(one) >= len(whole) {
			t.Errorf("part %s has no layer of its own", part)
		}
	}
}
