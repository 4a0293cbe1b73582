package surface

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// corpusCase is one file of testdata/planted or testdata/innocent. Its comment has the expectations and what txtar
// cannot say:
//
//	want <kind> <path> [grave] [line=<n>] [text=<part of the text>]
//	exec|link|module|bytes <side>/<path> [Go string]
//
// Its files are base/<path> and head/<path>, in which \u{XXXX} stands for a character, and \{<part>*<n>} for a repeated part.
type corpusCase struct {
	name       string
	want       []string
	base, head map[string]entry
}

type entry struct{ mode, data string }

var escape = regexp.MustCompile(`\\u\{([0-9A-Fa-f]+)\}|\\\{(.+?)\*([0-9]+)\}`)

func expand(s string) string {
	return escape.ReplaceAllStringFunc(s, func(m string) string {
		f := escape.FindStringSubmatch(m)
		if f[1] != "" {
			r, _ := strconv.ParseInt(f[1], 16, 32)
			return string(rune(r))
		}
		n, _ := strconv.Atoi(f[3])
		return strings.Repeat(f[2], n)
	})
}

func readCorpus(tb testing.TB, dir string) []corpusCase {
	tb.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", dir, "*.txtar"))
	if err != nil || len(files) == 0 {
		tb.Fatalf("no corpus in %s: %v", dir, err)
	}
	var cases []corpusCase
	for _, f := range files {
		a, err := txtar.ParseFile(f)
		if err != nil {
			tb.Fatal(err)
		}
		c := corpusCase{name: dir + "-" + strings.TrimSuffix(filepath.Base(f), ".txtar"), base: map[string]entry{}, head: map[string]entry{}}
		put := func(name, mode, data string) {
			side, p, _ := strings.Cut(name, "/")
			p = expand(p)
			switch side {
			case "base":
				c.base[p] = entry{mode, data}
			case "head":
				c.head[p] = entry{mode, data}
			default:
				tb.Fatalf("%s: a file is base/… or head/…, not %q", f, name)
			}
		}
		for _, af := range a.Files {
			put(af.Name, modeFile, expand(string(af.Data)))
		}
		for l := range strings.Lines(string(a.Comment)) {
			verb, rest, _ := strings.Cut(strings.TrimSpace(l), " ")
			name, arg, _ := strings.Cut(rest, " ")
			data := ""
			if strings.HasPrefix(arg, `"`) {
				if data, err = strconv.Unquote(arg); err != nil {
					tb.Fatalf("%s: %s: %v", f, arg, err)
				}
			}
			switch verb {
			case "want":
				c.want = append(c.want, rest)
			case "exec":
				side, p, _ := strings.Cut(name, "/")
				m := map[string]map[string]entry{"base": c.base, "head": c.head}[side]
				m[p] = entry{modeExecutable, m[p].data}
			case "link":
				put(name, modeLink, data)
			case "module":
				put(name, modeSubmodule, strings.Repeat("1", 40))
			case "bytes":
				put(name, modeFile, data)
			case "", "#":
			default:
				tb.Fatalf("%s: unknown line %q", f, l)
			}
		}
		cases = append(cases, c)
	}
	return cases
}

// stream is the case's two commits for git fast-import.
func (c corpusCase) stream(b *strings.Builder) {
	for _, side := range []struct {
		name  string
		files map[string]entry
	}{{"base", c.base}, {"head", c.head}} {
		fmt.Fprintf(b, "commit refs/heads/%s-%s\ncommitter Ann <ann@example.org> 1700000000 +0000\ndata 1\nx\ndeleteall\n", c.name, side.name)
		for p, e := range side.files {
			if e.mode == modeSubmodule {
				fmt.Fprintf(b, "M 160000 %s %s\n", e.data, p)
				continue
			}
			fmt.Fprintf(b, "M %s inline %s\ndata %d\n%s\n", e.mode, cQuote(p), len(e.data), e.data)
		}
		b.WriteString("\n")
	}
}

// cQuote quotes a path as fast-import reads it.
func cQuote(p string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(p) {
		if c := p[i]; c < 0x20 || c > 0x7e || c == '"' || c == '\\' {
			fmt.Fprintf(&b, `\%03o`, c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String() + `"`
}

// newRepo is an empty bare repository.
func newRepo(tb testing.TB) git.Repo {
	tb.Helper()
	dir := tb.TempDir()
	gittest.Git(tb, dir, "init", "-q", "--bare")
	return git.Repo{Dir: dir, Bare: true}
}

// load puts cases into a repository and returns a function that makes the report of one.
func load(tb testing.TB, repo git.Repo, cases []corpusCase) func(corpusCase) []workorder.SurfaceFinding {
	tb.Helper()
	var b strings.Builder
	for _, c := range cases {
		c.stream(&b)
	}
	in := repo
	in.Stdin = b.String()
	if err := in.Run(tb.Context(), "fast-import", "--quiet"); err != nil {
		tb.Fatal(err)
	}
	return func(c corpusCase) []workorder.SurfaceFinding {
		ids := make([]string, 2)
		for i, side := range []string{"base", "head"} {
			id, err := repo.Resolve(tb.Context(), "refs/heads/"+c.name+"-"+side)
			if err != nil || id == "" {
				tb.Fatalf("%s: no commit: %v", c.name, err)
			}
			ids[i] = id
		}
		fs, err := Report(tb.Context(), repo, ids[0], ids[1])
		if err != nil {
			tb.Fatal(err)
		}
		return fs
	}
}

// meets reports whether a finding is the wanted one.
func meets(f workorder.SurfaceFinding, want string) bool {
	want, text, _ := strings.Cut(want, " text=")
	w := strings.Fields(want)
	if f.Kind != w[0] || f.Path != visible(expand(w[1]), maxPath) || !strings.Contains(f.Text, text) {
		return false
	}
	grave := false
	for _, x := range w[2:] {
		if n, ok := strings.CutPrefix(x, "line="); ok && strconv.Itoa(f.Line) != n {
			return false
		}
		grave = grave || x == "grave"
	}
	return f.Grave == grave
}

// wellFormed checks what holds for every finding.
func wellFormed(tb testing.TB, fs []workorder.SurfaceFinding) {
	tb.Helper()
	kinds := map[string]bool{}
	for _, r := range Rules() {
		kinds[r.Kind] = true
	}
	if len(fs) > maxFindings {
		tb.Errorf("%d findings", len(fs))
	}
	for _, f := range fs {
		if !kinds[f.Kind] {
			tb.Errorf("kind %q is not in Rules", f.Kind)
		}
		for _, s := range []string{f.Text, f.Path} {
			if !utf8.ValidString(s) || visible(s, len(s)+1) != s {
				tb.Errorf("%q is not fit to be shown", s)
			}
		}
		if f.Text == "" || utf8.RuneCountInString(f.Text) > maxText+1 || f.Line < 0 {
			tb.Errorf("text or line of %+v", f)
		}
	}
}

func show(fs []workorder.SurfaceFinding) string {
	var b strings.Builder
	for _, f := range fs {
		mark := ""
		if f.Grave {
			mark = " GRAVE"
		}
		fmt.Fprintf(&b, "\n  %s %s:%d%s  %s", f.Kind, f.Path, f.Line, mark, f.Text)
	}
	return b.String()
}

// Every planted payload is found, with its kind, its place and its gravity.
func TestPlanted(t *testing.T) {
	t.Parallel()
	cases := readCorpus(t, "planted")
	if len(cases) < 60 {
		t.Errorf("only %d payloads", len(cases))
	}
	report := load(t, newRepo(t), cases)
	for _, c := range cases {
		fs := report(c)
		wellFormed(t, fs)
		if len(c.want) == 0 {
			t.Errorf("%s wants nothing", c.name)
		}
		for _, w := range c.want {
			if !slices.ContainsFunc(fs, func(f workorder.SurfaceFinding) bool { return meets(f, w) }) {
				t.Errorf("%s: want %s, got%s", c.name, w, show(fs))
			}
		}
		if os.Getenv("SHOW") != "" {
			t.Logf("%s%s", c.name, show(fs))
		}
	}
}

// Innocent changes give no finding, or exactly those that are wanted.
func TestInnocent(t *testing.T) {
	t.Parallel()
	cases := readCorpus(t, "innocent")
	if len(cases) < 30 {
		t.Errorf("only %d innocent changes", len(cases))
	}
	report := load(t, newRepo(t), cases)
	for _, c := range cases {
		fs := report(c)
		wellFormed(t, fs)
		ok := len(fs) == len(c.want)
		for _, w := range c.want {
			ok = ok && slices.ContainsFunc(fs, func(f workorder.SurfaceFinding) bool { return meets(f, w) })
		}
		if !ok {
			t.Errorf("%s: want %q, got%s", c.name, c.want, show(fs))
		}
	}
}
