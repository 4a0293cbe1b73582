package taskrunner

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandbox-agent/sandbox-agent/internal/redact"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

func newMedia(t *testing.T) (m *mediaDir, put func(name, content string)) {
	t.Helper()
	dir := t.TempDir()
	m, err := newMediaDir(
		filepath.Join(dir, "media"),
		filepath.Join(dir, "out"),
		nil,
		redact.Named(map[string]string{"TOKEN": "s3cret-of-the-box"}).String,
	)
	if err != nil {
		t.Fatal(err)
	}
	return m, func(name, content string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(m.path, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// Files of the agent are taken by the end of their name, under a name that is safe everywhere; a later process of the agent adds to them.
func TestMedia(t *testing.T) {
	t.Parallel()
	m, put := newMedia(t)
	put("b.PNG", "picture")
	put("a\x1b[31m <x>.png", "odd")
	put("walk.webm", "video")
	put("notes.txt", "token s3cret-of-the-box")
	put("run.sh", "no")
	put("noend", "no")
	files, warnings := m.collect()
	want := []workorder.Evidence{
		{Name: mediaTitle + "a__31m__x_.png", Path: "evidence/media/a__31m__x_.png", Kind: "screenshot"},
		{Name: mediaTitle + "b.png", Path: "evidence/media/b.png", Kind: "screenshot"},
		{Name: mediaTitle + "notes.txt", Path: "evidence/media/notes.txt", Kind: "text"},
		{Name: mediaTitle + "walk.webm", Path: "evidence/media/walk.webm", Kind: "video"},
	}
	if d := cmp.Diff(want, files); d != "" {
		t.Error(d)
	}
	if len(warnings) != 1 || !strings.HasPrefix(warnings[0], "2 ") {
		t.Errorf("%q", warnings)
	}
	if b, err := os.ReadFile(filepath.Join(m.out, "evidence/media/notes.txt")); err != nil || strings.Contains(string(b), "s3cret") {
		t.Errorf("%s %v", b, err)
	}
	// After a repair: what is there already is not taken twice, what changed is.
	put("b.png", "another name")
	put("walk.webm", "another video")
	if err := os.Chtimes(filepath.Join(m.path, "walk.webm"), time.Time{}, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	files, _ = m.collect()
	if len(files) != 2 || files[0].Path != "evidence/media/b-2.png" || files[1].Path != "evidence/media/walk-2.webm" {
		t.Errorf("%+v", files)
	}
}

// Nothing is followed, waited for or taken beyond the bounds.
func TestMediaHostile(t *testing.T) {
	t.Parallel()
	m, put := newMedia(t)
	put("ok.png", "fine")
	secret := filepath.Join(filepath.Dir(m.path), "secret.png")
	if err := os.WriteFile(secret, []byte("root's"), 0o600); err != nil {
		t.Fatal(err)
	}
	at := func(name string) string { return filepath.Join(m.path, name) }
	for _, err := range []error{
		os.Symlink(secret, at("out.png")), os.Symlink("ok.png", at("in.png")), os.Link(secret, at("hard.png")), syscall.Mkfifo(at("pipe.png"),
			0o644),
		os.Mkdir(at("folder.png"), 0o755), os.Symlink("loop.png", at("loop.png")), os.Truncate(at("ok.png"), 4),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	put("large.png", "")
	if err := os.Truncate(at("large.png"), maxMediaFile+1); err != nil {
		t.Fatal(err)
	}
	files, warnings := m.collect()
	if len(files) != 1 || files[0].Path != "evidence/media/ok.png" || len(warnings) != 7 {
		t.Errorf("%+v\n%q", files, warnings)
	}
	entries, err := os.ReadDir(filepath.Join(m.out, "evidence/media"))
	if err != nil || len(entries) != 1 {
		t.Errorf("%v %v", entries, err)
	}
	for i := range 2 * maxMediaFiles {
		put("more"+strings.Repeat("x", i)+".png", "x")
	}
	if files, warnings = m.collect(); len(files) != maxMediaFiles-1 || len(warnings) > maxMediaFiles+2 {
		t.Errorf("%d files, %d warnings", len(files), len(warnings))
	}
}

// A folder that is gone, or was there before the agent, is said and ends nothing.
func TestMediaGone(t *testing.T) {
	t.Parallel()
	m, _ := newMedia(t)
	if err := m.make(); err == nil {
		t.Error("a folder that is there was taken over")
	}
	if err := os.Remove(m.path); err != nil {
		t.Fatal(err)
	}
	if files, warnings := m.collect(); len(files) != 0 || len(warnings) != 1 {
		t.Errorf("%v %q", files, warnings)
	}
	if _, err := newMediaDir(filepath.Join(t.TempDir(), "no", "media"), t.TempDir(), nil, nil); err == nil {
		t.Error("a folder was made where none can be")
	}
}
