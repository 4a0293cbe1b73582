package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

func testSource() *Source {
	return &Source{
		files: fstest.MapFS{
			"Dockerfile":           {Data: []byte("FROM x\n")},
			"build/a.sh":           {Data: []byte("a\n")},
			"packages/p.json":      {Data: []byte("{}")},
			"rootfs/etc/gitconfig": {Data: []byte("[a]\n")},
		},
		entrypoint: new(Of([]byte("ELF"))),
	}
}

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
	got := contextOf(t, testSource(), Host{
		CAs:      map[string][]byte{"../b.crt": []byte("B"), "a.crt": []byte("A")},
		Registry: "https://npm.example/",
	})
	want := []string{
		"-rw-r--r-- Dockerfile FROM x",
		"-rw-r--r-- build/a.sh a",
		"-rw-r--r-- packages/p.json {}",
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
	for name, change := range map[string]func(*Source){
		"entrypoint": func(s *Source) { s.entrypoint = new(Of([]byte("ELG"))) },
		"content":    func(s *Source) { files(s)["build/a.sh"].Data = []byte("b\n") },
		"name":       func(s *Source) { files(s)["build/b.sh"] = files(s)["build/a.sh"]; delete(files(s), "build/a.sh") },
		"more":       func(s *Source) { files(s)["rootfs/x"] = &fstest.MapFile{} },
		// The same bytes in a row, cut elsewhere.
		"cut": func(s *Source) {
			files(s)["build/a.sh"].Data = []byte("a")
			files(s)["packages/p.json"].Data = []byte("\n{}")
		},
	} {
		if hash(change) == plain {
			t.Errorf("%s: the hash did not change", name)
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
	s := &Source{files: files, entrypoint: new(Of([]byte("x")))}
	names := map[string]bool{}
	for _, line := range contextOf(t, s, Host{}) {
		names[strings.Fields(line)[1]] = true
	}
	for _, want := range []string{
		"Dockerfile", "build/lib.sh", "build/system.sh", "build/browser.sh", "build/packages.sh", "build/finish.sh",
		"packages/package.json", "packages/package-lock.json", "rootfs/etc/gitconfig", "rootfs/etc/pip.conf",
	} {
		if !names[want] {
			t.Errorf("%s is not in the build context", want)
		}
	}
}
