//go:build e2e

package e2e

import (
	"bytes"
	"fmt"
	"image/png"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/container"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// devServer is a development server whose first page is made of a file, and of which the second never changes.
const devServer = `import http.server, os
class H(http.server.BaseHTTPRequestHandler):
    def log_message(self, *a): pass
    def do_GET(self):
        p = self.path
        pages = {"/": open("page.html").read(), "/about?x=1": "<p>Always the same.</p>", "/health": "ok"}
        self.send_response(200 if p in pages else 404)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(("<!doctype html><meta name=viewport content='width=device-width,initial-scale=1'><title>Demo</title>" + pages.get(p, "no such page")).encode())
http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), H).serve_forever()
`

func devFiles() map[string]string {
	return map[string]string{"serve.py": devServer, "page.html": "<h1>Hello</h1>"}
}

const devKey = "dev: {command: python3 serve.py, port: 3123, ready_path: /health, pages: [/, '/about?x=1']}\n"

// The runner shows what the task changed on the pages: pictures of both commits by content, what differs, a video, what the browser
// complains about; and the agent looks at its own server and leaves a picture. No network is needed for any of it.
func TestDev(t *testing.T) {
	t.Parallel()
	u := newCarefulUser(t)
	c := u.run("", "create", "--task", "x", "--repo", u.repo(devFiles()), "-p", u.project(scripted("network: {mode: none}\n"+devKey, `
set -e
printf '<h1 style="background:red">Hello, world</h1><img src=/gone.png><img src=http://elsewhere.example/x.png><script>console.error("it broke")</script>' >page.html
entrypoint dev start
entrypoint dev restart
entrypoint dev status
agent-browser open http://127.0.0.1:$SANDBOX_AGENT_DEV_PORT/
agent-browser screenshot "$SANDBOX_AGENT_MEDIA/mine.png"
agent-browser close
ln -s /etc/passwd "$SANDBOX_AGENT_MEDIA/passwd.txt"
`)))
	r := u.plainResult(c.task(t))
	dir := filepath.Join(u.state, r.TaskID)
	if c.code != 0 || r.Proof == nil || r.Status != workorder.StatusSuccess || len(r.Proof.Reasons) != 0 {
		t.Fatalf("exit code %d, %+v, %q\n%s", c.code, r.Proof, r.Warnings, c.stderr)
	}
	if !slices.ContainsFunc(r.Network.Hosts, func(h workorder.NetworkHost) bool {
		return h.Host == "elsewhere.example" && h.Status == workorder.NetworkRefused
	}) {
		t.Errorf("asked for %+v", r.Network.Hosts)
	}
	var seen []string
	for _, p := range r.Proof.Pages {
		seen = append(seen, fmt.Sprintf("%s %d", p.Path, p.Width))
		checkPage(t, dir, p)
	}
	if want := []string{"/ 1280", "/ 390", "/about?x=1 1280", "/about?x=1 390"}; !slices.Equal(seen, want) {
		t.Fatalf("%q", seen)
	}
	at := map[string]workorder.Evidence{}
	for _, e := range r.Evidence {
		at[e.Path] = e
	}
	for _, p := range r.Proof.Pages {
		for _, f := range []string{p.Base.Picture, p.Head.Picture, p.Diff} {
			if f != "" && at[f].Kind != workorder.EvidenceScreenshot {
				t.Errorf("%s is not in the evidence: %+v", f, r.Evidence)
			}
		}
	}
	video, err := os.ReadFile(filepath.Join(dir, "evidence/pages/walk-head.webm"))
	if err != nil || at["evidence/pages/walk-head.webm"].Kind != workorder.EvidenceVideo {
		t.Fatalf("%v, %+v", err, r.Evidence)
	}
	// A block of the container format has one frame of VP8.
	if n := bytes.Count(video, []byte("\xa3")); !bytes.HasPrefix(video, []byte("\x1aE\xdf\xa3")) || !bytes.Contains(video, []byte("V_VP8")) || n < 10 {
		t.Errorf("the video has %d blocks in %d bytes", n, len(video))
	}
	mine, err := os.ReadFile(filepath.Join(dir, "evidence/media/mine.png"))
	if err != nil || at["evidence/media/mine.png"].Kind != workorder.EvidenceScreenshot || !strings.Contains(at["evidence/media/mine.png"].Name, "agent's own") {
		t.Fatalf("%v, %+v, %q", err, r.Evidence, r.Warnings)
	}
	if m, err := png.Decode(bytes.NewReader(mine)); err != nil || m.Bounds().Dx() < 300 {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "evidence/media/passwd.txt")); err == nil || !slices.ContainsFunc(r.Warnings, func(s string) bool { return strings.Contains(s, "passwd.txt") }) {
		t.Errorf("%v, %q", err, r.Warnings)
	}
	for _, name := range []string{workorder.ReportMarkdown, workorder.ReportHTML} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"of the pixels differ", "no pixel differs", "it broke", "gone.png", "/about?x=1 at 390 px"} {
			if !strings.Contains(string(b), want) {
				t.Errorf("%s lacks %q", name, want)
			}
		}
		if name == workorder.ReportHTML && (strings.Count(string(b), "data:image/png") < 10 || strings.Count(string(b), "data:video/webm") != 1) {
			t.Errorf("%s has %d pictures", name, strings.Count(string(b), "data:image/png"))
		}
	}
}

// checkPage looks at a page's pictures.
func checkPage(t *testing.T, dir string, p workorder.PageProof) {
	t.Helper()
	if p.Base == nil || p.Head == nil || p.Base.Status != 200 || p.Head.Status != 200 || p.Head.Title != "Demo" || p.Head.Error != "" || p.Differs == nil {
		t.Fatalf("%s at %d: %+v, %+v, %v", p.Path, p.Width, p.Base, p.Head, p.Differs)
	}
	files := []string{p.Base.Picture, p.Head.Picture}
	changed := p.Path == "/"
	if (*p.Differs > 0) != changed || *p.Differs > 1 || (p.Diff != "") != changed {
		t.Errorf("%s at %d: %v differs, %q", p.Path, p.Width, *p.Differs, p.Diff)
	}
	if changed {
		files = append(files, p.Diff)
	}
	red := map[string]bool{}
	for _, f := range files {
		b, err := os.ReadFile(filepath.Join(dir, f))
		if err != nil {
			t.Fatal(err)
		}
		m, err := png.Decode(bytes.NewReader(b))
		if err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		if m.Bounds().Dx() != p.Width || m.Bounds().Dy() < 400 {
			t.Errorf("%s is %v", f, m.Bounds())
		}
		for x := range m.Bounds().Dx() {
			if r, g, b, _ := m.At(x, 30).RGBA(); r == 0xffff && g == 0 && b == 0 {
				red[f] = true
			}
		}
	}
	if red[p.Base.Picture] || red[p.Head.Picture] != changed {
		t.Errorf("%s at %d: what is red is %v", p.Path, p.Width, red)
	}
	if console := strings.Join(p.Head.Console, "|"); (console == "error: it broke") != changed || len(p.Base.Console) > 0 {
		t.Errorf("%s at %d: %q, before %q", p.Path, p.Width, console, p.Base.Console)
	}
	slices.Sort(p.Head.Failed)
	want := []string{}
	if changed {
		want = []string{"GET /gone.png: 404", "GET http://elsewhere.example/x.png: net::ERR_"} // the policy holds the runner's browser as well
	}
	if !slices.EqualFunc(p.Head.Failed, want, strings.HasPrefix) || len(p.Base.Failed) > 0 {
		t.Errorf("%s at %d: %q, before %q", p.Path, p.Width, p.Head.Failed, p.Base.Failed)
	}
}

// A stop while the server is waited for lands in the time of a stop, also with a server that does not hear it.
func TestDevStopped(t *testing.T) {
	t.Parallel()
	w := newCarefulUser(t).workOn(scripted("dev: {command: \"trap '' TERM; exec sleep 4711\", port: 3123, start_timeout: 5m}\n", busy+"echo x >x\n"))
	box := w.box()
	eventually(t, "the server runs", func() bool {
		top, err := eng.ContainerTop(t.Context(), box, []string{"-eo", "pid,args"})
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(top.Processes, func(p []string) bool { return strings.Join(p[1:], " ") == "sleep 4711" })
	})
	grace := int(workorder.StopGrace.Seconds())
	if err := eng.ContainerStop(t.Context(), box, container.StopOptions{Timeout: &grace}); err != nil {
		t.Fatal(err)
	}
	r := w.end(workorder.ExitOK, workorder.StatusSuccess, workorder.EndedByAgent)
	landed(t, w.repo, r)
	if r.Proof == nil || len(r.Proof.Pages) > 0 || len(r.Proof.Reasons) == 0 {
		t.Errorf("%+v", r.Proof)
	}
}

// The browser's side of the development server, in a container of the image.
func TestBrowserInside(t *testing.T) {
	t.Parallel()
	in := newInside(t, "../../runner/browse")
	in.network = "none"
	if !nightly {
		in = in.without("TestBoxHostilePages")
	}
	in.create(nil, nil, in.tests...).passed()
}
