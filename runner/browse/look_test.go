package browse

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"

	"github.com/sandbox-agent/sandbox-agent/internal/redact"
	"github.com/sandbox-agent/sandbox-agent/internal/safeopen"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Each view of a visit is reported as soon as it is complete, not at the end of the visit; invalid ones are
// not reported.
func TestTell(t *testing.T) {
	t.Parallel()
	done := filepath.Join(t.TempDir(), "told")
	b := pretend(t, `echo nonsense; echo '{"view":{"n":9}}'; echo '{"view":{"n":1,"status":404,"error":"s3cret-of-the-page\u001b"}}'; echo '{"view":{"n":1,"status":200}}'
for i in $(seq 100); do [ -e `+done+` ] && break; sleep 0.1; done
[ -e `+done+` ] && echo '{"view":{"n":0,"status":200}}'`)
	var told []View
	b.Tell = func(v View) {
		told = append(told, v)
		if err := os.WriteFile(done, nil, 0o600); err != nil {
			t.Error(err)
		}
	}
	seen, err := b.Visit(t.Context(), "http://127.0.0.1:1", "head", []string{"/"}, false)
	if err != nil || len(seen.Views) != 2 || len(told) != 2 {
		t.Fatalf("%v, seen %+v, told %+v", err, seen, told)
	}
	if v := told[0]; v.Path != "/" || v.Width != 390 || v.Seen.Status != 404 || v.Seen.Error != "[redacted:TOKEN]" {
		t.Errorf("told %+v", v)
	}
}

// pretend is a browser's side that is a shell script. $out is its folder; good.png in it is a picture.
func pretend(t *testing.T, script string) *Browser {
	t.Helper()
	good := filepath.Join(t.TempDir(), "good.png")
	if err := os.WriteFile(good, drawn(t, 1280, 900), 0o644); err != nil {
		t.Fatal(err)
	}
	return &Browser{
		Argv: []string{"/bin/sh", "-c", "out=$HOME/../out; cat >$TMPDIR/request; cp " + good + " $out/good.png\n" + script}, Dir: filepath.Join(t.TempDir(), "d"), OutDir: t.TempDir(),
		Redact: redact.Named(map[string]string{"TOKEN": "s3cret-of-the-page"}),
	}
}

func TestLook(t *testing.T) {
	t.Parallel()
	b := pretend(t, `cp $TMPDIR/request $out/../../../request
cp $out/good.png $out/page-0.png; cp $out/good.png $out/page-3.png; printf '\032E\337\243rest' >$out/walk.webm
printf '%s\n' '{"view":{"n":0,"status":200,"title":"a\u001b[31m s3cret-of-the-page\u202e","picture":true,"console":["error: x\ny"],"failed":["GET /a: 404"]}}'
echo '{"view":{"n":1,"status":99999,"error":"it hung"}}'
echo '{"view":{"n":2,"status":404}}'
echo '{"view":{"n":3,"status":200,"picture":true}}'
echo '{"video":true}'`)
	seen, err := b.Visit(t.Context(), "http://127.0.0.1:1", "head", []string{"/", "/Log in?x=1"}, true)
	if err != nil {
		t.Fatal(err)
	}
	none := []string{}
	want := VisitResult{Video: "evidence/pages/walk-head.webm", Views: []View{
		{"/", 1280, workorder.PageView{Status: 200, Title: "a[31m [redacted:TOKEN]", Picture: "evidence/pages/01-index-1280-head.png", PictureWidth: 1280, PictureHeight: 900, Console: []string{"error: x y"}, Failed: []string{"GET /a: 404"}}},
		{"/", 390, workorder.PageView{Error: "it hung", Console: none, Failed: none}},
		{"/Log in?x=1", 1280, workorder.PageView{Status: 404, Console: none, Failed: none}},
		{"/Log in?x=1", 390, workorder.PageView{Status: 200, Picture: "evidence/pages/02-Log-in-390-head.png", PictureWidth: 1280, PictureHeight: 900, Console: none, Failed: none}},
	}}
	if d := cmp.Diff(want, seen); d != "" {
		t.Error(d)
	}
	for _, f := range []string{want.Video, want.Views[0].Seen.Picture, want.Views[3].Seen.Picture} {
		if fi, err := os.Lstat(filepath.Join(b.OutDir, f)); err != nil || !fi.Mode().IsRegular() {
			t.Errorf("%s: %v", f, err)
		}
	}
	if left, err := os.ReadDir(b.Dir); err != nil || len(left) > 0 {
		t.Errorf("%v %v stay", left, err)
	}
	var req Request
	if asked, err := os.ReadFile(filepath.Join(filepath.Dir(b.Dir), "request")); err != nil || json.Unmarshal(asked, &req) != nil || !req.Video || len(req.Paths) != 2 || req.Origin != "http://127.0.0.1:1" {
		t.Errorf("asked for %s, %v", asked, err)
	}
}

// Whatever the browser's side says and leaves: nothing but its own regular files of a bounded size is taken, nothing is followed, and
// what is missing is said.
func TestLookHostile(t *testing.T) {
	t.Parallel()
	const view0 = `echo '{"view":{"n":0,"status":200,"picture":true}}'; `
	for name, c := range map[string]struct {
		script string
		want   string // in the error
		page   string // in the view's error; empty: no such view
	}{
		"says nothing":       {`true`, "2 of 2 ", ""},
		"dies":               {view0 + `echo Segmentation fault s3cret-of-the-page >&2; exit 139`, "[redacted:TOKEN]", "page-0.png"},
		"no JSON":            {`echo '{"view":'; echo '[]'; echo null; echo '"x"'; head -c 100000 /dev/zero; echo`, "2 of 2 ", ""},
		"unknown page":       {`for n in -1 2 99999999999999999999 1e3; do echo "{\"view\":{\"n\":$n}}"; done`, "2 of 2 ", ""},
		"no picture":         {view0, "1 of 2 ", "no such file"},
		"link out":           {`ln -s /etc/passwd $out/page-0.png; ` + view0, "1 of 2 ", safeopen.ErrUnsafe.Error()},
		"link within":        {`ln -s good.png $out/page-0.png; ` + view0, "1 of 2 ", safeopen.ErrUnsafe.Error()},
		"hard link":          {`ln $out/good.png $out/page-0.png; ` + view0, "1 of 2 ", safeopen.ErrUnsafe.Error()},
		"pipe":               {`mkfifo $out/page-0.png; ` + view0, "1 of 2 ", safeopen.ErrUnsafe.Error()},
		"folder":             {`mkdir $out/page-0.png; ` + view0, "1 of 2 ", safeopen.ErrUnsafe.Error()},
		"text":               {`echo '<script>' >$out/page-0.png; ` + view0, "1 of 2 ", errPicture.Error()},
		"too large":          {`truncate -s 30M $out/page-0.png; ` + view0, "1 of 2 ", strconv.Itoa(maxPicture)},
		"link for a folder":  {`rm -r $out; ln -s /etc $out; ` + view0, "", ""},
		"video that is none": {view0 + `echo '<html>' >$out/walk.webm; echo '{"video":true}'`, " webm", "no such file"},
		// what proc.Output keeps
		"floods": {`yes '{"error":"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"}' | head -c 20000000`, strconv.Itoa(16 << 20), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := pretend(t, c.script)
			seen, err := b.Visit(t.Context(), "http://127.0.0.1:1", "head", []string{"/"}, false)
			if name == "link for a folder" { // the folder is the browser's to ruin, not ours to follow
				for _, v := range seen.Views {
					if v.Seen.Picture != "" {
						t.Errorf("%+v", v)
					}
				}
			} else if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if err != nil && strings.Contains(err.Error(), "s3cret") {
				t.Error(err)
			}
			switch {
			case c.page == "" && name != "link for a folder" && len(seen.Views) > 0:
				t.Errorf("%+v", seen.Views)
			case c.page != "" && (len(seen.Views) != 1 || seen.Views[0].Seen.Picture != "" || !strings.Contains(seen.Views[0].Seen.Error, c.page)):
				t.Errorf("%+v", seen.Views)
			}
			if left, err := os.ReadDir(b.Dir); err != nil || len(left) > 0 {
				t.Errorf("%v %v stay", left, err)
			}
		})
	}
}

// Lists and texts are bounded, whatever is in them.
func TestLookBounds(t *testing.T) {
	t.Parallel()
	long := make([]string, 10*workorder.MaxPageNotes)
	for i := range long {
		long[i] = "é\x00\x1b\n\u2066" + strings.Repeat("é", 300)
	}
	line, err := json.Marshal(message{View: &view{Status: 200, Title: long[0], Console: long, Failed: long, Error: strings.Repeat("e", 8000)}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "line")
	if err := os.WriteFile(file, line, 0o644); err != nil {
		t.Fatal(err)
	}
	b := pretend(t, "cat "+file)
	seen, err := b.Visit(t.Context(), "http://127.0.0.1:1", "base", []string{"/"}, false)
	if err == nil || len(seen.Views) != 1 {
		t.Fatalf("%+v, %v", seen, err)
	}
	s := seen.Views[0].Seen
	if len(s.Console) != workorder.MaxPageNotes || len(s.Failed) != workorder.MaxPageNotes || len(s.Error) > maxNote || len(s.Title) > maxTitle {
		t.Errorf("%d, %d, %d, %d", len(s.Console), len(s.Failed), len(s.Error), len(s.Title))
	}
	for _, text := range append(s.Console, s.Title) {
		if len(text) > maxNote || strings.ContainsFunc(text, unicode.IsControl) || strings.ContainsRune(text, '\u2066') {
			t.Errorf("%q", text)
		}
	}
}

// The end of the run ends the browser; more pages than anybody looks at are left out, and it is said.
func TestLookEnds(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	b := pretend(t, `echo '{"view":{"n":0,"status":200}}'; touch $out/../../../begun; sleep 600`)
	go func() {
		for ctx.Err() == nil {
			if _, err := os.Stat(filepath.Join(filepath.Dir(b.Dir), "begun")); err == nil {
				cancel(context.Canceled)
			}
		}
	}()
	seen, err := b.Visit(ctx, "http://127.0.0.1:1", "head", []string{"/"}, true)
	if err == nil || len(seen.Views) != 1 {
		t.Errorf("%+v, %v", seen, err)
	}
	many := make([]string, maxPages+3)
	for i := range many {
		many[i] = "/"
	}
	if _, err := pretend(t, "true").Visit(t.Context(), "http://127.0.0.1:1", "head", many, false); err == nil || !strings.Contains(err.Error(), "3 ") {
		t.Error(err)
	}
	if _, err := pretend(t, "true").Visit(t.Context(), "http://127.0.0.1:1", "head", []string{"@example.org/"}, false); err == nil {
		t.Error("it looked elsewhere")
	}
}

func TestCompareAll(t *testing.T) {
	t.Parallel()
	b := &Browser{OutDir: t.TempDir(), Redact: redact.Named(nil)}
	put := func(name string, content []byte) *workorder.PageView {
		path := filepath.Join(b.OutDir, pagesDir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			t.Fatal(err)
		}
		return &workorder.PageView{Picture: pagesDir + "/" + name}
	}
	same := drawn(t, 20, 20)
	pages := []workorder.PageProof{
		{Path: "/", Width: 1280, Base: put("01-index-1280-base.png", same), Head: put("01-index-1280-head.png", drawn(t, 20, 25))},
		{Path: "/", Width: 390, Base: put("01-index-390-base.png", same), Head: put("01-index-390-head.png", same)},
		{Path: "/new", Width: 390, Head: put("02-new-390-head.png", same)},
		{Path: "/bad", Width: 390, Base: put("03-bad-390-base.png", []byte("x")), Head: put("03-bad-390-head.png", same)},
	}
	err := b.CompareAll(t.Context(), pages)
	if err == nil || !strings.Contains(err.Error(), "/bad at 390 px") {
		t.Error(err)
	}
	if p := pages[0]; p.Differs == nil || *p.Differs != 0.2 || p.Diff != pagesDir+"/01-index-1280-diff.png" {
		t.Errorf("%+v", p)
	}
	if p := pages[1]; p.Differs == nil || *p.Differs != 0 || p.Diff != "" {
		t.Errorf("%+v", p)
	}
	if pages[2].Differs != nil || pages[3].Differs != nil {
		t.Errorf("%+v", pages[2:])
	}
	names := map[string]string{}
	for _, e := range Evidence(pages, "evidence/pages/walk-head.webm") {
		names[e.Path] = e.Kind
		if e.Kind == workorder.EvidenceScreenshot {
			if _, err := os.Stat(filepath.Join(b.OutDir, e.Path)); err != nil {
				t.Error(err)
			}
		}
	}
	if len(names) != 9 || names["evidence/pages/walk-head.webm"] != workorder.EvidenceVideo {
		t.Errorf("%v", names)
	}
}
