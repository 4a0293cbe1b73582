package launch

import (
	"archive/tar"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/test/runtimetest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// TestWorkComesFirst: evidence that has no room does not cost the work that git could
// not take.
func TestWorkComesFirst(t *testing.T) {
	t.Parallel()
	written := make(chan struct{})
	fake := runtimetest.NewFake(map[string]runtimetest.Program{"x": func(b *runtimetest.Box) int {
		for _, name := range []string{workorder.EvidenceDir + "/a", workorder.EvidenceDir + "/b", workorder.ArchiveFile} {
			b.WriteFile(workorder.OutDir+"/"+name, []byte(name))
		}
		close(written)
		return 0
	}})
	id, err := fake.Run(t.Context(), runtime.ContainerSpec{Name: "x", Image: "x"}, strings.NewReader(""))
	if err != nil {
		t.Fatal(err)
	}
	<-written
	dir := t.TempDir()
	in, err := newIntake(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	in.entries = 2
	if err := (collector{&Launcher{Host: Host{Engine: fake}}}).empty(t.Context(), id, in, nil); err != nil || len(in.warnings) != 1 {
		t.Errorf("%v, warnings %q", err, in.warnings)
	}
	if b, err := os.ReadFile(filepath.Join(dir, workorder.ArchiveFile)); err != nil || string(b) != workorder.ArchiveFile {
		t.Errorf("%q, %v", b, err)
	}
}

// TestUnpack: the archive comes from a box that an agent was root in for all we know.
func TestUnpack(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.Symlink(filepath.Dir(outside), filepath.Join(dir, "way-out")); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	tw := tar.NewWriter(&b)
	add := func(h tar.Header, content string) {
		t.Helper()
		h.Size, h.Mode = int64(len(content)), 0o777
		if err := tw.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := tw.Write([]byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	file := func(name, content string) { add(tar.Header{Name: name, Typeflag: tar.TypeReg}, content) }
	add(tar.Header{Name: "out/", Typeflag: tar.TypeDir}, "")
	file("out/result.json", "the result")
	file("out/logs/a.log", "log")
	file("out/evidence/deep/x.png", "png")
	file("out/events.jsonl", "no event\n"+`{"seq":2,"type":"warning","text":"lost on the way"}`+"\n")
	file("out/events.jsonl/x", "below a file")
	file("out/workorder.json", "forged")
	file("out/task.json", "forged")
	file("out/attempts/1/result.json", "forged")
	file("out/.hidden", "x")
	file("out/logs/a.log/below-a-file", "x")
	file("out/../../escape", "x")
	file("/out/../escape2", "x")
	add(tar.Header{Name: "out/link", Typeflag: tar.TypeSymlink, Linkname: outside}, "")
	add(tar.Header{Name: "out/hard", Typeflag: tar.TypeLink, Linkname: "/etc/passwd"}, "")
	add(tar.Header{Name: "out/dev", Typeflag: tar.TypeBlock}, "")
	if err := tw.Close(); err != nil {
		t.Fatal(err)
	}
	in, err := newIntake(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := in.outDir(&b); err != nil || string(in.result) != "the result" {
		t.Errorf("result %q, %v", in.result, err)
	}
	in.Close()
	if len(in.warnings) != 1 || !strings.Contains(in.warnings[0], "2 ") {
		t.Errorf("warnings = %q", in.warnings)
	}
	var got []string
	if err := filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		if rel, rerr := filepath.Rel(dir, p); err == nil && rerr == nil && !d.IsDir() {
			got = append(got, rel)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if want := "events.jsonl evidence/deep/x.png logs/a.log way-out"; strings.Join(got, " ") != want {
		t.Errorf("unpacked %v, want %s", got, want)
	}
	b.Reset()
	tw = tar.NewWriter(&b)
	file("out/way-out/outside", "x")
	if err := tw.Close(); err != nil {
		t.Fatal(err)
	}
	if in, err = newIntake(dir); err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if err := in.outDir(&b); err == nil {
		t.Error("wrote through a link that leads out")
	}
	if _, err := os.Stat(outside); err == nil {
		t.Error("a file was written outside")
	}
}

// TestUnpackBounds: a box cannot fill the host's folders with names either.
func TestUnpackBounds(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	tw := tar.NewWriter(&b)
	for i := range 4 {
		if err := tw.WriteHeader(&tar.Header{Name: fmt.Sprintf("out/%d", i), Typeflag: tar.TypeReg}); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	in, err := newIntake(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	in.entries = 2
	if err := in.outDir(&b); err != nil || len(in.warnings) != 1 {
		t.Errorf("%v, warnings %q", err, in.warnings)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 2 {
		t.Errorf("%d files, %v", len(left), err)
	}
}
