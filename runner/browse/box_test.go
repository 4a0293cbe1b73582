//go:build boxtest

// These tests run as root in a container of the box's image, which has the browser. They are compiled on the host
// (go test -c -tags boxtest).
package browse

import (
	"bytes"
	"context"
	"fmt"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/internal/redact"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const site = `
import http.server, os, sys
color = sys.argv[1]
class H(http.server.BaseHTTPRequestHandler):
    def log_message(self, *a): pass
    def do_GET(self):
        p = self.path.split("?")[0]
        if p not in ("/", "/about", "/tall", "/hang", "/bad", "/wide"):
            self.send_response(404); self.end_headers(); return
        if p == "/hang":
            import time; time.sleep(3600)
        body = "<!doctype html><meta name=viewport content='width=device-width,initial-scale=1'><title>Page \x1b[31m%s</title><style>@keyframes k{to{transform:translateX(100px)}} #a{animation:k 1s infinite;width:20px;height:20px;background:red}</style>" % p
        if p == "/": body += "<h1 style='color:%s'>Hello %s</h1><div id=a></div><img src=/missing.png><script>console.error('it broke s3cret-value-here'); console.warn('careful'); console.log('quiet'); setTimeout(()=>{throw new Error('thrown')},0)</script>" % (color, color)
        if p == "/about": body += "<p>Always the same.</p>"
        if p == "/tall": body += "<div style='height:90000px;background:linear-gradient(red,blue)'>tall</div>"
        if p == "/wide": body += "<div style='width:90000px;height:50px;background:linear-gradient(90deg,red,blue)'>wide</div>"
        if p == "/bad":
            body += "<script>for(let i=0;i<1000;i++){console.error('e'+i+'x'.repeat(100000))} Object.defineProperty(document.documentElement,'scrollHeight',{get(){return 5}}); alert('x'); window.open('/about')</script>"
        self.send_response(200); self.send_header("Content-Type", "text/html"); self.end_headers(); self.wfile.write(body.encode())
http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), H).serve_forever()
`

const (
	serverUID  = 1000
	browserUID = 65534
	port       = 3111
)

// look serves the site in a colour and looks at it.
func look(t *testing.T, out, color, side string, pages []string, video bool) (VisitResult, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	s, err := Serve(ctx, &workorder.Dev{Port: port}, func(ctx context.Context) Ended {
		tail := proc.NewTail(1000)
		err := proc.Run(ctx, proc.Spec{
			Argv: []string{"python3", "-c", site, color}, Dir: "/tmp", Env: []string{"PATH=/usr/bin:/bin", fmt.Sprintf("PORT=%d", port)},
			User: &proc.Credential{UID: serverUID, GID: serverUID}, Stdout: tail, Stderr: tail,
		})
		return Ended{ExitCode: proc.ExitCode(err), Tail: tail.String(), Err: err}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Stop()
	b := browser(t, out)
	return b.Visit(ctx, s.Origin, side, pages, video)
}

func browser(t *testing.T, out string) *Browser {
	t.Helper()
	dir := t.TempDir()
	for up := dir; up != "/tmp" && up != "/"; up = filepath.Dir(up) {
		if err := os.Chmod(up, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	tools := "/opt/playwright/runner"
	if _, err := os.Stat(tools); err != nil {
		tools = "/opt/playwright/browsers"
	}
	return &Browser{
		Argv: []string{"/proc/self/exe", "browse"}, User: &proc.Credential{UID: browserUID, GID: browserUID}, Dir: dir, OutDir: out,
		Program: "/usr/local/bin/chromium", Redact: redact.Named(map[string]string{"TOKEN": "s3cret-value-here"}),
		Env: []string{"PLAYWRIGHT_DRIVER_PATH=/opt/playwright/driver", "PLAYWRIGHT_BROWSERS_PATH=" + tools, "PLAYWRIGHT_NODEJS_PATH=/usr/local/bin/node"},
	}
}

// A real browser looks at both sides of a site: pictures by content, what the console said, what failed, a video; and nothing stays.
func TestBoxLook(t *testing.T) {
	out := t.TempDir()
	pages := []string{"/", "/about"}
	base, err := look(t, out, "green", "base", pages, false)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	head, err := look(t, out, "blue", "head", pages, true)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("head took %s", time.Since(began))
	if len(base.Views) != 4 || len(head.Views) != 4 || base.Video != "" || head.Video == "" {
		t.Fatalf("%+v\n%+v", base, head)
	}
	first := head.Views[0]
	t.Logf("%+v", first)
	if first.Path != "/" || first.Width != 1280 || first.Seen.Status != 200 || first.Seen.Title != "Page [31m/" {
		t.Errorf("%+v", first)
	}
	for _, want := range []string{"it broke", "warning: careful", "uncaught: thrown"} {
		if !slices.ContainsFunc(first.Seen.Console, func(s string) bool { return strings.Contains(s, want) }) {
			t.Errorf("no %q in %q", want, first.Seen.Console)
		}
	}
	if len(first.Seen.Console) != 3 || strings.Contains(strings.Join(first.Seen.Console, ""), "s3cret") {
		t.Errorf("%q", first.Seen.Console)
	}
	if !slices.Equal(first.Seen.Failed, []string{"GET /missing.png: 404"}) {
		t.Errorf("%q", first.Seen.Failed)
	}
	var proof []workorder.PageProof
	for i := range head.Views {
		v := head.Views[i]
		c := decoded(t, filepath.Join(out, v.Seen.Picture))
		if c.X != v.Width || c.X != v.Seen.PictureWidth || c.Y != v.Seen.PictureHeight || c.Y < 500 {
			t.Errorf("%s at %d: %v", v.Path, v.Width, c)
		}
		proof = append(proof, workorder.PageProof{Path: v.Path, Width: v.Width, Base: &base.Views[i].Seen, Head: &v.Seen})
	}
	if err := browser(t, out).CompareAll(t.Context(), proof); err != nil {
		t.Fatal(err)
	}
	for _, p := range proof {
		if p.Differs == nil || (*p.Differs > 0) != (p.Path == "/") || (p.Diff != "") != (p.Path == "/") {
			t.Errorf("%s at %d: %v %q", p.Path, p.Width, p.Differs, p.Diff)
		}
	}
	frames, err := exec.CommandContext(t.Context(), "ffprobe", "-v", "error", "-count_packets", "-select_streams", "v", "-show_entries", "stream=nb_read_packets,codec_name,width", "-of", "csv=p=0", filepath.Join(out, head.Video)).Output()
	if err != nil {
		t.Fatal(err)
	}
	var n, width int
	if f := strings.Split(strings.TrimSpace(string(frames)), ","); len(f) != 3 || f[0] != "vp8" {
		t.Fatalf("%q", frames)
	} else if _, err := fmt.Sscan(f[1]+" "+f[2], &width, &n); err != nil || width != 1280 || n < 20 {
		t.Errorf("%q", frames)
	}
	if left := proc.OfUser(browserUID); len(left) > 0 {
		t.Errorf("processes %v stayed", left)
	}
	if left := proc.OfUser(serverUID); len(left) > 0 {
		t.Errorf("processes %v stayed", left)
	}
}

func decoded(t *testing.T, path string) (size struct{ X, Y int }) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	m, err := png.Decode(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	size.X, size.Y = m.Bounds().Dx(), m.Bounds().Dy()
	return size
}

// Pages that are too long, never load or mean harm cost their own picture at most.
func TestBoxHostilePages(t *testing.T) {
	out := t.TempDir()
	seen, err := look(t, out, "red", "head", []string{"/tall", "/wide", "/bad", "/hang", "/gone", "/about"}, false)
	if err != nil {
		t.Fatal(err)
	}
	at := map[string]View{}
	for _, v := range seen.Views {
		if v.Width == 1280 {
			at[v.Path] = v
		}
	}
	if s := at["/tall"].Seen; s.PictureHeight != maxHeight {
		t.Errorf("%+v", s)
	}
	if s := at["/wide"].Seen; s.PictureWidth > maxWidth || s.Picture == "" {
		t.Errorf("%+v", s)
	}
	if s := at["/bad"].Seen; len(s.Console) != workorder.MaxPageNotes || len(s.Console[0]) > maxNote || s.Picture == "" {
		t.Errorf("%+v", s)
	}
	if s := at["/hang"].Seen; s.Status != 0 || s.Error == "" {
		t.Errorf("%+v", s)
	}
	// Without a body the browser has nothing to show: it reports an error or shows an empty page.
	if s := at["/gone"].Seen; s.Status != 404 || s.Error == "" && s.Picture == "" {
		t.Errorf("%+v", s)
	}
	if s := at["/about"].Seen; s.Status != 200 || s.Error != "" || s.Picture == "" {
		t.Errorf("%+v", s)
	}
}
