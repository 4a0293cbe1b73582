package report

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

var update = flag.Bool("update", false, "write the golden files")

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(readFile(t, file), got); diff != "" {
		t.Errorf("%s differs (-want +got), go test -update writes it:\n%s", file, diff)
	}
}

func TestMarkdownGolden(t *testing.T) {
	t.Parallel()
	for name, d := range samples() {
		t.Run(name, func(t *testing.T) {
			got := Markdown(d)
			if n := utf8.RuneCountInString(got); n > maxMarkdown {
				t.Errorf("%d characters", n)
			}
			if again := Markdown(d); again != got {
				t.Error("a second time it is another one")
			}
			safeMarkdown(t, got)
			golden(t, name+".md", got)
		})
	}
}

func TestHTMLGolden(t *testing.T) {
	t.Parallel()
	for name, d := range samples() {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			if err := HTML(d, &b); err != nil {
				t.Fatal(err)
			}
			safeHTML(t, b.String())
			if dir := os.Getenv("REPORT_OUT"); dir != "" { // to look at all of them
				if err := os.WriteFile(filepath.Join(dir, name+".html"), b.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if name == "success" {
				golden(t, "example.html", b.String())
			}
			if b.Len() > 30<<20 {
				t.Errorf("%d bytes", b.Len())
			}
		})
	}
}

// A reviewer sees what speaks against the work before the first green tick.
func TestCheatsComeFirst(t *testing.T) {
	t.Parallel()
	s := Markdown(cheats())
	flag, tick := strings.Index(s, "[!CAUTION]"), strings.Index(s, "✅")
	if flag < 0 || tick < flag {
		t.Errorf("the flags are at %d, the first tick at %d", flag, tick)
	}
	if edited := strings.Index(s, "basket/basket_test.go"); edited < 0 || edited > flag {
		t.Errorf("the edited tests are at %d, the flags at %d", edited, flag)
	}
	if strings.Contains(s[:flag], "Done") {
		t.Error("the outcome says that it is done")
	}
	var b bytes.Buffer
	if err := HTML(cheats(), &b); err != nil {
		t.Fatal(err)
	}
	h := b.String()
	if flag, tick = strings.Index(h, `class="alarm"`), strings.Index(h, "✓"); flag < 0 || tick < flag {
		t.Errorf("HTML: the flags are at %d, the first tick at %d", flag, tick)
	}
}

// The worst test is shown even where there is room for few.
func TestWorstFirst(t *testing.T) {
	t.Parallel()
	d := huge()
	s := Markdown(d)
	if i, j := strings.Index(s, "passed, now fails"), strings.Index(s, "| deleted"); i < 0 || j >= 0 && j < i {
		t.Errorf("broken at %d, deleted at %d", i, j)
	}
}

func TestNothingAtAll(t *testing.T) {
	t.Parallel()
	for _, d := range []Data{{}, {Result: nil, Order: Order{Task: "\n\x00\u202e"}}} {
		safeMarkdown(t, Markdown(d))
		var b bytes.Buffer
		if err := HTML(d, &b); err != nil {
			t.Fatal(err)
		}
		safeHTML(t, b.String())
	}
}

func TestText(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ in, want string }{
		{"a\x1b[31mb\u202e\u200b\x00c", "a[31mbc"},
		{"  two\n\tlines ", "two lines"},
		{"a" + strings.Repeat("\u0301", 50), "a" + strings.Repeat("\u0301", maxMarks)},
		{"bad \xff byte", "bad \ufffd byte"},
		{strings.Repeat("ä", 50), strings.Repeat("ä", 20) + "…"},
	} {
		if got := line(c.in, 20); got != c.want {
			t.Errorf("line(%q) = %q, want %q", c.in, got, c.want)
		}
	}
	if got, cut := block("\n\n a\r\n\n\n\nb  \n", 100); got != " a\n\nb" || cut {
		t.Errorf("block = %q, %v", got, cut)
	}
	if got := tail("first line\nsecond line\nthird", 20); got != "… second line\nthird" {
		t.Errorf("tail = %q", got)
	}
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"https://github.example/a/b#L1":                    "https://github.example/a/b#L1",
		"javascript:alert(1)":                              "",
		"data:text/html,x":                                 "",
		"//evil.example":                                   "",
		"https://user:pass@evil.example":                   "",
		"https://evil.example/\u202e":                      "",
		"https://x.example/a\"onerror=b":                   "https://x.example/a%22onerror=b",
		"https://x.example/" + strings.Repeat("a", maxURL): "",
		"file:///etc/passwd":                               "",
	} {
		if got := webAddress(in); got != want {
			t.Errorf("webAddress(%q) = %q, want %q", in, got, want)
		}
	}
	for _, p := range []string{"../x", "/etc/passwd", "a/../../x", "a\\b", "a\nb", "", ".", "a\u202eb"} {
		if got := localPath(p); got != "" {
			t.Errorf("localPath(%q) = %q", p, got)
		}
	}
	if got := pathURL("evidence/a b:#?.png"); got != "./evidence/a%20b:%23%3F.png" {
		t.Error(got)
	}
}

// An embedded file is a picture by its content, within the bounds, and a regular file in the folder.
func TestEmbedding(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	png := "\x89PNG\r\n\x1a\n" + "rest"
	secret := filepath.Join(t.TempDir(), "secret.png")
	for name, text := range map[string]string{
		filepath.Join(dir, "ok.png"): png, filepath.Join(dir, "svg.png"): "<svg onload=alert(1)>", filepath.Join(dir, "html.png"): "<html>",
		filepath.Join(dir, "large.png"): png + strings.Repeat("x", maxPicture), secret: png,
	} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(secret, filepath.Join(dir, "link.png")); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	e := &embedder{files: root.FS(), room: 1 << 20}
	for name, want := range map[string]bool{
		"ok.png": true, "svg.png": false, "html.png": false, "large.png": false, "link.png": false,
		"gone.png": false, ".": false,
	} {
		if got := e.dataURI(name, false); (got != "") != want {
			t.Errorf("%s: %.40q", name, got)
		}
	}
	if e.dataURI("ok.png", true) != "" {
		t.Error("a picture is a video")
	}
	e.room = 5
	if e.dataURI("ok.png", false) != "" {
		t.Error("there was no room")
	}
}

func TestSteps(t *testing.T) {
	t.Parallel()
	const id = "T-4K9QZ7AB"
	for want, got := range map[string][]NextStep{
		"[{Write review comments here, then let the agent work on them sandbox-agent revise --pr 1234} {Add to the task, in a new " +
			"sandbox sandbox-agent continue " + id + ` --task "..."}]`: RevisePR(1234, id, workorder.StatusSuccess),
		"[{Go on with the task in a new sandbox sandbox-agent continue " + id +
			"}]": RevisePR(0, id,
			workorder.StatusTimeout),
		"[{Let a new sandbox carry the plan out sandbox-agent create --from-plan " + id +
			"}]": RevisePR(0, id,
			workorder.StatusPlanned),
		"[]": RevisePR(0, "; rm -rf /", workorder.StatusSuccess),
		`[{Take it over yourself git fetch origin 'agent/x'\''y' && git switch 'agent/x'\''y'}]`: {TakeOver("https://example.com/x.git",
			"agent/x'y")},
		`[{Take it over yourself git -C '/home/me/my shop' switch agent/x}]`: {TakeOver("/home/me/my shop", "agent/x")},
		`[{Take it over yourself git clone --branch agent/x /srv/shop.git}]`: {TakeOver("/srv/shop.git", "agent/x")},
	} {
		if fmt.Sprint(got) != want {
			t.Errorf("got  %v\nwant %s", got, want)
		}
	}
}
