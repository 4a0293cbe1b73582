package browse

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/internal/redact"
	"github.com/sandbox-agent/sandbox-agent/internal/safeopen"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// pagesDir holds the pictures, relative to the result directory.
const pagesDir = workorder.EvidenceDir + "/pages"

// Browser is root's side of the browser.
type Browser struct {
	// Argv is the command of the browser's side.
	Argv []string
	// User runs the browser and nothing else: all of its processes are killed after a visit. Nil means the current user.
	User *proc.Credential
	// Dir is a directory of root that the user can traverse. It is created if missing.
	Dir    string
	OutDir string
	// Env is the driver's environment, in addition to HOME and TMPDIR. It must not contain secrets.
	Env []string
	// Program is the browser; empty means the driver's default.
	Program string
	Redact  *redact.Set
	// Tell, if non-nil, receives each view as soon as the browser's side reports it, without its picture.
	Tell func(View)
}

// View describes a page in a window of one size.
type View struct {
	Path  string
	Width int
	Seen  workorder.PageView
}

// VisitResult is the result of a visit.
type VisitResult struct {
	Views []View
	Video string // path relative to the result directory; empty if there is none
}

// Visit visits the pages of a running server, for a side: base or head. With an error it also returns the views so far.
func (b *Browser) Visit(ctx context.Context, origin, side string, pages []string, video bool) (VisitResult, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, visitTime, fmt.Errorf("it took longer than %s", visitTime))
	defer cancel()
	var paths []string
	for _, p := range pages {
		if !rooted(p) {
			return VisitResult{}, fmt.Errorf("dev.pages: %q is not a path", p)
		}
		paths = append(paths, p)
	}
	var left error
	if n := len(paths) - maxPages; n > 0 {
		paths, left = paths[:maxPages], fmt.Errorf("%d pages beyond the first %d were left out", n, maxPages)
	}
	dir, err := b.makeDir()
	if err != nil {
		return VisitResult{}, err
	}
	defer os.RemoveAll(dir)
	req, err := json.Marshal(Request{Origin: origin, Paths: paths, Dir: filepath.Join(dir, "out"), Video: video, Browser: b.Program})
	if err != nil {
		return VisitResult{}, fmt.Errorf("encode the browser's request: %w", err)
	}
	out, err := b.run(ctx, dir, req, b.teller(paths))
	seen, terr := b.take(dir, side, paths, out)
	if video && seen.Video == "" && err == nil && terr == nil {
		terr = errors.New("there is no video")
	}
	return seen, errors.Join(left, err, terr)
}

// makeDir creates the browser's own directory, with a home and a directory for its output.
func (b *Browser) makeDir() (string, error) {
	fail := func(err error) (string, error) { return "", fmt.Errorf("create a directory for the browser: %w", err) }
	if err := os.MkdirAll(b.Dir, 0o755); err != nil {
		return fail(err)
	}
	dir, err := os.MkdirTemp(b.Dir, "browse-")
	if err != nil {
		return fail(err)
	}
	for _, d := range []string{"home", "tmp", "out"} {
		err = errors.Join(err, os.Mkdir(filepath.Join(dir, d), 0o700))
	}
	if b.User != nil {
		for _, d := range []string{"home", "tmp", "out", ""} {
			err = errors.Join(err, os.Chown(filepath.Join(dir, d), int(b.User.UID), int(b.User.GID)))
		}
	}
	if err != nil {
		return fail(errors.Join(err, os.RemoveAll(dir)))
	}
	return dir, nil
}

// teller returns a writer that passes each view to Tell once: the browser's side is untrusted and may repeat itself.
func (b *Browser) teller(paths []string) io.Writer {
	if b.Tell == nil {
		return nil
	}
	known := map[int]bool{}
	return text.NewLines(text.MaxLine, func(line []byte, lost int64) {
		var t message
		if lost > 0 || len(line) > maxLine || json.Unmarshal(line, &t) != nil || t.View == nil {
			return
		}
		if n := t.View.N; n >= 0 && n < len(paths)*len(Sizes()) && !known[n] {
			known[n] = true
			b.Tell(*b.words(paths, t.View))
		}
	})
}

// run runs the browser's side and then kills all processes of its user. as receives its output while it runs.
func (b *Browser) run(ctx context.Context, dir string, req []byte, as io.Writer) ([]byte, error) {
	const oomScore = 800 // killed before the processes of the task's checks
	out, err := proc.Output(ctx, proc.Spec{
		Argv: b.Argv, Dir: filepath.Join(dir, "home"), User: b.User, Stdin: bytes.NewReader(req), Stdout: as, OOMScoreAdj: oomScore,
		Env: append([]string{
			"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8", "TZ=UTC",
			"HOME=" + filepath.Join(dir, "home"), "TMPDIR=" + filepath.Join(dir, "tmp"),
		}, b.Env...),
	})
	if b.User != nil {
		if n := proc.Sweep(b.User.UID, nil); n > 0 {
			err = errors.Join(err, fmt.Errorf("%d of its processes could not be killed", n))
		}
	}
	if err != nil {
		return out, fmt.Errorf("the browser did not finish: %s", clean(b.Redact.String(err.Error()), 4*maxNote))
	}
	return out, nil
}

func (b *Browser) take(dir, side string, paths []string, said []byte) (VisitResult, error) {
	root, err := os.OpenRoot(filepath.Join(dir, "out"))
	if err != nil {
		return VisitResult{}, fmt.Errorf("read the pictures: %w", err)
	}
	defer root.Close()
	if err := os.MkdirAll(filepath.Join(b.OutDir, filepath.FromSlash(pagesDir)), 0o755); err != nil {
		return VisitResult{}, fmt.Errorf("read the pictures: %w", err)
	}
	var seen VisitResult
	var errs []error
	all := make([]*View, len(paths)*len(Sizes()))
	for line := range bytes.Lines(said) {
		var t message
		if len(line) > maxLine || json.Unmarshal(line, &t) != nil {
			continue // missing pages are reported below
		}
		switch {
		case t.View != nil && t.View.N >= 0 && t.View.N < len(all) && all[t.View.N] == nil:
			all[t.View.N] = b.view(root, side, paths, t.View)
		case t.Video && seen.Video == "":
			name := pagesDir + "/walk-" + side + ".webm"
			if err := b.video(root, name); err != nil {
				errs = append(errs, err)
			} else {
				seen.Video = name
			}
		case t.Error != "":
			errs = append(errs, errors.New(b.text(t.Error, maxNote)))
		}
	}
	for _, v := range all {
		if v != nil {
			seen.Views = append(seen.Views, *v)
		}
	}
	if n := len(all) - len(seen.Views); n > 0 {
		errs = append(errs, fmt.Errorf("%d of %d views of pages are missing", n, len(all)))
	}
	return seen, errors.Join(errs...)
}

func (b *Browser) words(paths []string, in *view) *View {
	v := &View{Path: paths[in.N/len(Sizes())], Width: Sizes()[in.N%len(Sizes())].Width, Seen: workorder.PageView{
		Status: in.Status, Title: b.text(in.Title, maxTitle), Error: b.text(in.Error, maxNote),
		Console: b.texts(in.Console), Failed: b.texts(in.Failed),
	}}
	if in.Status < 100 || in.Status > 999 {
		v.Seen.Status = 0
	}
	return v
}

func (b *Browser) view(root *os.Root, side string, paths []string, in *view) *View {
	v := b.words(paths, in)
	if !in.Picture {
		return v
	}
	name := fmt.Sprintf("%s/%02d-%s-%d-%s.png", pagesDir, in.N/len(Sizes())+1, slug(v.Path), v.Width, side)
	c, err := b.picture(root, fmt.Sprintf(pictureFile, in.N), name)
	if err != nil {
		v.Seen.Error = b.text("no picture: "+err.Error(), maxNote)
		return v
	}
	v.Seen.Picture, v.Seen.PictureWidth, v.Seen.PictureHeight = name, c.width, c.height
	return v
}

type extent struct{ width, height int }

func (b *Browser) picture(root *os.Root, from, to string) (extent, error) {
	content, err := b.file(root, from, maxPicture)
	if err != nil {
		return extent{}, err
	}
	c, err := measure(content)
	if err != nil {
		return extent{}, err
	}
	return extent{c.Width, c.Height}, b.put(to, content)
}

// webmHead starts every file of the container format that the driver writes.
const webmHead = "\x1aE\xdf\xa3"

func (b *Browser) video(root *os.Root, to string) error {
	content, err := b.file(root, videoFile, maxVideo)
	if err == nil && !bytes.HasPrefix(content, []byte(webmHead)) {
		err = errors.New("not a webm file")
	}
	if err != nil {
		return fmt.Errorf("there is no video: %w", err)
	}
	return b.put(to, content)
}

// file reads a regular file of the browser's user, without following links, of at most that many bytes.
func (b *Browser) file(root *os.Root, name string, most int64) ([]byte, error) {
	content, err := safeopen.Read(root, name, b.User.Owner(), most)
	if err != nil {
		return nil, fmt.Errorf("read %s of the browser: %w", name, err)
	}
	return content, nil
}

func (b *Browser) put(name string, content []byte) error {
	if err := os.WriteFile(filepath.Join(b.OutDir, filepath.FromSlash(name)), content, 0o644); err != nil {
		return fmt.Errorf("keep %s: %w", path.Base(name), err)
	}
	return nil
}

func (b *Browser) text(s string, most int) string {
	return clean(b.Redact.String(s[:min(len(s), 4*rawNote)]), most)
}

func (b *Browser) texts(in []string) []string {
	out := []string{}
	for _, s := range in[:min(len(in), workorder.MaxPageNotes)] {
		out = append(out, b.text(s, maxNote))
	}
	return out
}

var notInName = lazyregexp.New(`[^A-Za-z0-9]+`)

func slug(p string) string {
	const most = 40
	p, _, _ = strings.Cut(p, "?")
	p = strings.Trim(notInName.ReplaceAllString(p, "-"), "-")
	if p = strings.Trim(p[:min(len(p), most)], "-"); p == "" {
		return "index"
	}
	return p
}
